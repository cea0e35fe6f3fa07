"""Claims about extproc/core/slots/endpoint_slots.py: which requests may use reserved slots."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.objective import Criticality
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.slots.endpoint_slots import Reservation
from extproc.core.slots.ledger import DrainingCaps, Ledger

HERE = Address("10.0.0.1", 8080)
CRITICAL, STANDARD, SHEDDABLE = Criticality


def reserved(
    weight_slots: int = 4, *, leased: int = 2, foreign: int = 0, is_exclusive: bool = False
) -> Reservation:
    """A standard request reserves the free ones of four slots."""
    ledger = Ledger(DrainingCaps())
    ledger.add_endpoint(HERE, 0.0)
    ledger.observe(
        Observation(
            address=HERE,
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            slots=4,
            busy_slots=foreign,
        ),
        1.0,
    )
    for _ in range(leased):
        ledger.open(HERE, 1, 2.0)
    reservation = Reservation(ledger.endpoint_slots(HERE), 1, STANDARD, weight_slots)
    reservation.is_exclusive = is_exclusive
    return reservation


@pytest.mark.parametrize(
    ("criticality", "may"), [(CRITICAL, True), (STANDARD, False), (SHEDDABLE, False)]
)
def test_only_a_request_of_higher_criticality_may_use_reserved_slots(
    criticality: Criticality, may: bool
) -> None:
    assert reserved().may_be_bypassed(criticality, 1) is may


def test_a_request_that_finds_too_few_slots_bypasses_nothing() -> None:
    reservation = reserved(leased=2)
    assert reservation.may_be_bypassed(CRITICAL, 2)
    assert not reservation.may_be_bypassed(CRITICAL, 3)
    assert not reserved(leased=4).may_be_bypassed(CRITICAL, 1)


def test_nobody_bypasses_an_exclusive_reservation() -> None:
    """Otherwise critical requests without end would starve its ticket."""
    assert not reserved(is_exclusive=True).may_be_bypassed(CRITICAL, 1)


def test_an_exclusive_reservation_that_cannot_be_met_may_be_bypassed() -> None:
    """Foreign requests hold a slot that it needs: to keep the others idle helps nobody."""
    reservation = reserved(leased=2, foreign=1, is_exclusive=True)
    assert not reservation.can_be_met()
    assert reservation.may_be_bypassed(CRITICAL, 1)


def test_a_reservation_can_be_met_when_our_own_leases_end() -> None:
    assert reserved(leased=4).can_be_met()
    assert reserved(3, leased=3, foreign=1).can_be_met()
