"""Claims about extproc/records/wait_samples.py, on real streams and a real core."""

from __future__ import annotations

import pytest

from extproc.records import wait_samples
from extproc.records.wait_samples import INTERVAL_S, WaitSamples
from tests.fakes.simulated_traffic import Client, SimulatedTraffic


class Queue:
    """One server with one slot, and three clients of it."""

    def __init__(self, clients: int = 3) -> None:
        self.traffic = SimulatedTraffic([("big", 1)], [Client("big", "work")] * clients, seed=1)
        self.cost_s = 0.0
        self.samples = WaitSamples(self.traffic.dispatcher, self.traffic.registry, self._work_time)
        self._worked_s = 0.0

    def _work_time(self) -> float:
        self._worked_s += self.cost_s
        return self._worked_s

    def waiting(self) -> list[str]:
        return [each.id for each in self.traffic.registry if each.ticket is not None]

    def sample(self) -> float:
        return self.samples.sample(self.traffic.now)


async def test_the_wait_since_the_last_look_has_the_reason_that_is_seen() -> None:
    """And what no sample saw at the end is added to the last reason."""
    queue = Queue()
    await queue.traffic.run(0.1)
    first, second = queue.waiting()
    queue.sample()
    await queue.traffic.run(0.2)
    queue.sample()
    wait = queue.samples.get(second)
    assert wait is not None and wait is queue.samples.take(second)
    assert (wait.place, wait.place_of) == (2, 2)
    assert wait.place_after_s == pytest.approx(0.08)
    assert wait.reasons(1.0) == {"no-idle-slot": 1.0}
    assert queue.samples.take(second) is None
    assert queue.samples.get(first) is not None


async def test_of_who_did_not_wait_nothing_is_kept() -> None:
    queue = Queue(clients=1)
    await queue.traffic.run(0.1)
    assert queue.sample() == INTERVAL_S
    assert not len(queue.samples)


async def test_looks_take_a_bounded_share_of_the_time() -> None:
    """A sample that took 10 ms is followed by a pause of half a second."""
    queue = Queue()
    await queue.traffic.run(0.1)
    queue.cost_s = 0.01
    assert queue.sample() == pytest.approx(0.5)


async def test_memory_is_bounded_and_forgets_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the oldest of a long queue are looked at."""
    monkeypatch.setattr(wait_samples, "MAX_SAMPLED", 2)
    queue = Queue(clients=6)
    await queue.traffic.run(0.1)
    queue.sample()
    assert len(queue.samples) == 2
    waiting = queue.waiting()
    assert queue.samples.get(waiting[0]) is not None and queue.samples.get(waiting[2]) is None
    for _ in range(50):
        await queue.traffic.run(5.0)
        queue.sample()
        assert len(queue.samples) <= 4
