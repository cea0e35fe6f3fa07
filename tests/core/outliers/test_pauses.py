"""Claims about extproc/core/outliers/pauses.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.outliers.pauses import LONGEST_PAUSE_S, PAUSE_S, SHORTEST_PAUSE_S, Pauses
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.small_fleet import SmallFleet

A, B = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080)


@pytest.mark.parametrize(
    ("asked", "pause_s"),
    [(None, PAUSE_S), (30.0, 30.0), (0.0, SHORTEST_PAUSE_S), (1e9, LONGEST_PAUSE_S)],
)
def test_a_pause_is_as_long_as_it_asks_within_bounds(asked: float | None, pause_s: float) -> None:
    assert Pauses().next_s(A, asked, is_paused=False) == pause_s


def test_each_pause_without_a_success_since_the_last_is_twice_as_long() -> None:
    """Of that server alone, up to the longest; a longer one that it asks for counts."""
    pauses = Pauses()
    found = [pauses.next_s(A, 1.0, is_paused=False) for _ in range(10)]
    assert found == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, LONGEST_PAUSE_S]
    assert pauses.next_s(B, 1.0, is_paused=False) == 1.0
    assert pauses.next_s(B, 50.0, is_paused=False) == 50.0


def test_requests_that_meet_the_same_pause_double_nothing() -> None:
    """Those that ran already; the longest counts when the next pause begins."""
    pauses = Pauses()
    assert pauses.next_s(A, 10.0, is_paused=False) == 10.0
    assert [pauses.next_s(A, 4.0, is_paused=True) for _ in range(5)] == [4.0] * 5
    assert pauses.next_s(A, None, is_paused=False) == 20.0


@pytest.mark.parametrize("ends", ["served", "forgotten", "replaced"])
def test_a_success_ends_the_row_and_so_does_another_server(ends: str) -> None:
    pauses = Pauses()
    pauses.served(A)
    for _ in range(3):
        pauses.next_s(A, 1.0, is_paused=False)
    match ends:
        case "served":
            pauses.served(A)
        case "forgotten":
            pauses.forget(A)
        case _:
            pauses.replaced(A, 0.0)
    assert pauses.next_s(A, 1.0, is_paused=False) == 1.0


def test_a_provider_that_rejects_everything_gets_ever_fewer_requests() -> None:
    """And one that serves again is used again at once."""
    fleet = SmallFleet()
    fleet.add(1, busy=None)

    def reject(lease: Lease) -> None:
        fleet.dispatcher.responded(lease, fleet.now, is_stream=False, is_error=True)
        fleet.dispatcher.paused(lease, 1.0, fleet.now)
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)

    lengths = []
    lease = fleet.pick()
    for _ in range(5):
        reject(lease)
        began_at = fleet.now
        waiting = fleet.queue(timeout_s=600.0)
        while waiting.is_waiting:
            fleet.pass_time(1.0)
        lengths.append(fleet.now - began_at)
        lease = fleet.handed(waiting)
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0]
    fleet.finish(lease)
    reject(fleet.pick())
    waiting = fleet.queue(timeout_s=600.0)
    fleet.pass_time(1.0)
    assert not waiting.is_waiting
