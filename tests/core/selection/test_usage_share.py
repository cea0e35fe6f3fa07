"""Claims about extproc/core/selection/usage_share.py."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.selection.usage_share import HALF_LIFE_S, UsageShare

A, B = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)


def test_overuse_is_more_than_chance() -> None:
    usage = UsageShare()
    for _ in range(100):
        usage.assigned(A, 1, 0.0)
    for _ in range(50):
        usage.assigned(B, 1, 0.0)
    fair = usage.fair_share([(A, 4), (B, 4)], 0.0)
    assert not usage.is_overused(A, 4, fair, 0.0)
    for _ in range(100):
        usage.assigned(A, 1, 0.0)
    fair = usage.fair_share([(A, 4), (B, 4)], 0.0)
    assert usage.is_overused(A, 4, fair, 0.0) and not usage.is_overused(B, 4, fair, 0.0)
    assert usage.recent_slots(A, 60.0) == 100.0


def test_use_has_a_half_life() -> None:
    usage = UsageShare()
    usage.assigned(A, 8, 0.0)
    assert usage.recent_slots(A, HALF_LIFE_S) == 4.0
    usage.assigned(A, 2, HALF_LIFE_S)
    assert usage.recent_slots(A, 2 * HALF_LIFE_S) == 3.0


def test_the_fair_share_is_that_of_a_slot() -> None:
    """A server with three times the slots may get three times as much."""
    usage = UsageShare()
    usage.assigned(A, 9, 0.0)
    usage.assigned(B, 3, 0.0)
    fair = usage.fair_share([(A, 3), (B, 1)], 0.0)
    assert fair == 3.0
    assert not usage.is_overused(A, 3, fair, 0.0) and not usage.is_overused(B, 1, fair, 0.0)


def test_without_slots_nothing_is_a_fair_share() -> None:
    """All endpoints are down, or the fleet is empty."""
    usage = UsageShare()
    usage.assigned(A, 1, 0.0)
    assert usage.fair_share([], 0.0) == usage.fair_share([(A, 0)], 0.0) == 0.0


def test_a_few_requests_are_never_overuse() -> None:
    """Chance alone makes small numbers uneven."""
    usage = UsageShare()
    usage.assigned(A, 3, 0.0)
    assert not usage.is_overused(A, 1, 0.0, 0.0)
    usage.assigned(A, 1, 0.0)
    assert usage.is_overused(A, 1, 0.0, 0.0)


def test_an_endpoint_that_returns_to_the_fleet_has_no_use() -> None:
    usage = UsageShare()
    usage.assigned(A, 5, 0.0)
    usage.forget(A)
    usage.forget(B)
    assert usage.recent_slots(A, 0.0) == 0.0
