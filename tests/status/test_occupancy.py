"""Claims about extproc/status/occupancy.py, on requests whose times are known."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange
from extproc.core.slots.lease import Lease
from extproc.status.occupancy import Occupancy
from tests.telemetry.records import record

ADDRESS = Address("10.0.0.1", 8080)
STEP_S = 5.0


@dataclass
class Waiting:
    entered_at: float


@dataclass
class Snapshot:
    waited_s: float


class Request:
    """Queued at `entered_at`, with slots from `opened_at`, over at `ended_at`. One that never gets
    slots has them from infinity."""

    def __init__(self, id_: str, entered_at: float, opened_at: float, ended_at: float) -> None:
        self.id = id_
        self.entered_at = entered_at
        self.opened_at = opened_at
        self.ended_at = ended_at
        self.lease: Lease | None = None
        self.ticket: Waiting | None = None

    def snapshot(self, now: float) -> Snapshot:
        return Snapshot(waited_s=self.opened_at - self.entered_at)

    def at(self, now: float) -> None:
        """Be what it is at `now`."""
        is_open = self.opened_at <= now
        self.lease = Lease(1, ADDRESS, 2, self.opened_at) if is_open else None
        self.ticket = None if is_open else Waiting(self.entered_at)

    def record(self) -> ExchangeRecord:
        has_slots = self.opened_at < self.ended_at
        held_s = self.ended_at - self.opened_at
        return record(
            began_at=self.entered_at,
            duration_s=self.ended_at - self.entered_at,
            waited_s=min(self.opened_at, self.ended_at) - self.entered_at,
            opened_at=self.opened_at if has_slots else None,
            slot_s=2 * held_s if has_slots else 0.0,
        )

    def means(self, since: float, until: float) -> tuple[float, float]:
        """What it adds to the slots and to the queue of an interval."""
        settled_at = min(self.opened_at, self.ended_at)
        held = overlap(settled_at, self.ended_at, since, until)
        queued = overlap(self.entered_at, settled_at, since, until)
        return 2 * held / (until - since), queued / (until - since)


def overlap(began: float, ended: float, since: float, until: float) -> float:
    return max(0.0, min(ended, until) - max(began, since))


def random_requests(random: Random, count: int) -> list[Request]:
    """From milliseconds to half a minute, some without a wait, some that never get a slot."""
    found = []
    for number in range(count):
        entered_at = random.uniform(0.0, 20 * STEP_S)
        waited_s = random.choice((0.0, 0.01, random.uniform(0.0, 20.0)))
        held_s = random.choice((0.01, random.uniform(0.0, 30.0)))
        is_rejected = random.random() < 0.2
        ended_at = entered_at + waited_s + (0.0 if is_rejected else held_s)
        opened_at = float("inf") if is_rejected else entered_at + waited_s
        found.append(Request(str(number), entered_at, opened_at, ended_at))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_means_are_those_of_every_moment(seed: int) -> None:
    """Whether requests lie within an interval, span several, or still run at its end."""
    requests = random_requests(Random(seed), 300)
    registry = ExchangeRegistry()
    occupancy = Occupancy(registry)
    occupancy.take(0.0)
    ended: set[str] = set()
    for step in range(1, 30):
        now = step * STEP_S
        for one in requests:
            if one.entered_at > now or one.id in ended:
                continue
            if one.ended_at <= now:
                ended.add(one.id)
                registry.leave(cast("KnownExchange", one))
                occupancy.request_ended(one.record())
            else:
                one.at(now)
                registry.enter(cast("KnownExchange", one))
        expected: list[Any] = [one.means(now - STEP_S, now) for one in requests]
        slots, queued = occupancy.take(now)
        assert slots == pytest.approx(sum(one[0] for one in expected))
        assert queued == pytest.approx(sum(one[1] for one in expected))
    assert len(ended) == len(requests)


def test_the_first_reading_is_the_moment() -> None:
    """What happened before it, and for how long, is not known."""
    registry = ExchangeRegistry()
    occupancy = Occupancy(registry)
    for one in (Request("a", 0.0, 1.0, 99.0), Request("b", 0.0, 50.0, 99.0)):
        one.at(9.0)
        registry.enter(cast("KnownExchange", one))
    occupancy.request_ended(Request("c", 0.0, 1.0, 2.0).record())
    assert occupancy.take(9.0) == (2.0, 1.0)
