"""Claims about tests/fakes/accounting.py: who was overtaken."""

from __future__ import annotations

from tests.fakes.accounting import Account, Trace


def account(*requests: tuple[float, float, float]) -> Account:
    """Requests by when Envoy read them, when their slots became free, and when they started."""
    found = Account()
    for number, (read_at, freed_at, started_at) in enumerate(requests):
        found.traces[number] = Trace(
            number, read_at=read_at, freed_at=freed_at, started_at=started_at
        )
    return found


def overtaken(*requests: tuple[float, float, float]) -> list[int]:
    return [one.number for one in account(*requests).overtaken()]


def test_one_that_gets_a_later_slot_than_one_that_came_later_is_overtaken() -> None:
    assert overtaken((1.0, 5.0, 5.0), (2.0, 4.0, 4.0)) == [0]
    assert overtaken((1.0, 4.01, 4.02), (2.0, 4.0, 4.0)) == [0], "however short that is"
    assert overtaken((1.0, 4.0, 4.0), (2.0, 5.0, 5.0)) == []
    assert overtaken((1.0, 5.0, 5.0), (1.4, 4.0, 4.0)) == [], "they came close together"


def test_those_that_get_free_slots_in_one_moment_are_together() -> None:
    assert overtaken((1.0, 2.0, 4.1), (2.0, 2.0, 4.0)) == []
    assert overtaken((1.0, 2.0, 4.9), (2.0, 2.0, 4.0)) == [0], "its slot stood idle for it"
