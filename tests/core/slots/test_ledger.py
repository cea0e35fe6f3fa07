"""Claims about extproc/core/slots/ledger.py: its three rules, and that nothing accumulates."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.slots.draining_evidence import RELEASE_S
from extproc.core.slots.lease import Lease, LeaseEnd, LeaseError, LeaseState
from extproc.core.slots.ledger import DrainingCaps, Ledger

HERE = Address("10.0.0.1", 8080)
THERE = Address("10.0.0.2", 8080)


def scrape(
    ledger: Ledger, at: float, *, busy: int | None, slots: int = 2, address: Address = HERE
) -> None:
    ledger.observe(
        Observation(
            address=address,
            began_at=at,
            answered_at=at,
            status=ScrapeStatus.READY,
            slots=slots,
            busy_slots=busy,
        ),
        at,
    )


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger(DrainingCaps(reported_s=10.0, blind_s=1.0))
    for address in (HERE, THERE):
        ledger.add_endpoint(address, 0.0)
        scrape(ledger, 0.0, busy=0, address=address)
    return ledger


def left(ledger: Ledger, at: float, address: Address = HERE) -> Lease:
    lease = ledger.open(address, 1, at)
    ledger.release(lease, LeaseEnd.ABANDONED, at)
    return lease


# 1. never more than is free


def test_no_lease_without_free_slots(ledger: Ledger) -> None:
    """The ledger itself rejects what the dispatcher must not request."""
    ledger.open(HERE, 1, 1.0)
    with pytest.raises(ValueError, match="has no 2 free slots"):
        ledger.open(HERE, 2, 1.0)
    ledger.open(HERE, 1, 1.0)
    with pytest.raises(ValueError, match="has no 1 free slots"):
        ledger.open(HERE, 1, 1.0)
    assert ledger.endpoint_slots(HERE).leased_slots == 2


def test_a_lease_weighs_at_most_the_endpoints_slots(ledger: Ledger) -> None:
    """A request for nine slots takes both, and returns both."""
    lease = ledger.open(HERE, 9, 1.0)
    assert lease.weight_slots == 2
    ledger.release(lease, LeaseEnd.SERVED, 2.0)
    assert ledger.endpoint_slots(HERE).free_slots == 2


def test_a_move_records_what_envoy_did(ledger: Ledger) -> None:
    """The one call that may exceed the slots: the request runs there already."""
    for _ in range(2):
        ledger.open(THERE, 1, 1.0)
    lease = ledger.open(HERE, 1, 1.0)
    lease.progress = GenerationProgress(unseen_until=0.5, seen_at=1.0)
    before = lease.seen
    ledger.move(lease, THERE, 2.0)
    assert lease.address == THERE
    assert (before is None, lease.seen) == (False, None), "that was another's"
    assert (
        ledger.endpoint_slots(HERE).leased_slots,
        ledger.endpoint_slots(THERE).leased_slots,
    ) == (0, 3)
    assert ledger.endpoint_slots(THERE).free_slots == 0
    ledger.release(lease, LeaseEnd.SERVED, 3.0)
    assert ledger.endpoint_slots(THERE).leased_slots == 2


# 2. released exactly once


def test_a_second_release_raises(ledger: Ledger) -> None:
    """And changes nothing."""
    lease = ledger.open(HERE, 1, 1.0)
    ledger.release(lease, LeaseEnd.SERVED, 2.0)
    for end in LeaseEnd:
        with pytest.raises(LeaseError):
            ledger.release(lease, end, 3.0)
    assert ledger.endpoint_slots(HERE).leased_slots == 0
    assert ledger.next_expiry() is None


def test_ids_are_not_used_twice(ledger: Ledger) -> None:
    """A lease's number is never used again."""
    first = ledger.open(HERE, 1, 1.0)
    ledger.release(first, LeaseEnd.SERVED, 1.0)
    assert ledger.open(HERE, 1, 1.0).id != first.id


# 3. draining


def test_an_abandoned_lease_drains_until_seen_free(ledger: Ledger) -> None:
    """The slot stays busy until a scrape that began later shows it free."""
    lease = left(ledger, 1.0)
    assert (lease.state, ledger.endpoint_slots(HERE).free_slots) == (LeaseState.DRAINING, 1)
    scrape(ledger, 2.0, busy=1)
    assert lease.state is LeaseState.DRAINING
    scrape(ledger, 3.0, busy=0)
    assert (lease.state, ledger.endpoint_slots(HERE).free_slots) == (LeaseState.CLOSED, 2)


def test_a_cap_frees_it_at_last(ledger: Ledger) -> None:
    """Ten seconds without any scrape, and not a moment earlier."""
    lease = left(ledger, 1.0)
    assert ledger.next_expiry() == 11.0
    assert ledger.expire(10.999) == []
    assert ledger.expire(11.0) == [HERE]
    assert (lease.state, ledger.endpoint_slots(HERE).free_slots) == (LeaseState.CLOSED, 2)
    assert ledger.next_expiry() is None


def test_a_blind_server_has_a_short_cap() -> None:
    """Nothing but time can free its slots."""
    ledger = Ledger(DrainingCaps(reported_s=10.0, blind_s=1.0))
    ledger.add_endpoint(HERE, 0.0)
    scrape(ledger, 0.0, busy=None)
    left(ledger, 1.0)
    assert ledger.next_expiry() == 2.0
    assert ledger.expire(2.0) == [HERE]


def test_a_cap_on_a_busy_slot_makes_it_foreign(ledger: Ledger) -> None:
    """Rule 1 precedes rule 3: a slot last seen busy is not free because the cap passed."""
    left(ledger, 1.0)
    scrape(ledger, 2.0, busy=1)
    ledger.expire(11.0)
    endpoint_slots = ledger.endpoint_slots(HERE)
    assert (
        endpoint_slots.leased_slots,
        endpoint_slots.foreign_slots,
        endpoint_slots.free_slots,
    ) == (0, 1, 1)


def test_a_cap_ignores_a_closed_lease(ledger: Ledger) -> None:
    """A lease that a scrape freed changes nothing when its cap passes."""
    left(ledger, 1.0)
    later = left(ledger, 1.5, THERE)
    scrape(ledger, 2.0, busy=0)
    assert ledger.next_expiry() == 11.5
    assert ledger.expire(11.0) == []
    assert ledger.expire(12.0) == [THERE]
    assert later.state is LeaseState.CLOSED


def test_caps_come_in_order(ledger: Ledger) -> None:
    """The first to leave is given up first."""
    left(ledger, 1.0)
    left(ledger, 1.5, THERE)
    assert ledger.expire(20.0) == [HERE, THERE]


def test_a_thousand_draining_leases_leave_nothing(ledger: Ledger) -> None:
    """What a scrape has freed does not stay in the heap until its cap."""
    for step in range(1000):
        left(ledger, float(step))
        scrape(ledger, step + 0.5, busy=0)
        assert ledger.next_expiry() is None
    assert ledger._caps_due == []


def test_a_scrape_is_evaluated_again_after_releases_arrived(ledger: Ledger) -> None:
    """A lease that is still open then ran at that scrape: the other one's slot is free."""
    ledger.open(HERE, 1, 1.0)
    lease = left(ledger, 1.0)
    scrape(ledger, 2.0, busy=2)
    scrape(ledger, 3.0, busy=1)
    assert ledger.next_expiry() == 2.0 + RELEASE_S
    assert ledger.expire(2.0 + RELEASE_S) == []
    scrape(ledger, 4.0, busy=1)
    assert ledger.next_expiry() == 4.0 + RELEASE_S
    assert ledger.expire(4.0 + RELEASE_S) == [HERE]
    assert (lease.state, ledger.endpoint_slots(HERE).free_slots) == (LeaseState.CLOSED, 1)


def test_an_evaluation_for_a_removed_endpoint_changes_nothing(ledger: Ledger) -> None:
    """It was removed meanwhile."""
    left(ledger, 1.0)
    scrape(ledger, 2.0, busy=1)
    ledger.expire(11.0)
    left(ledger, 12.0)
    scrape(ledger, 13.0, busy=1)
    ledger.expire(22.0)
    ledger.remove_endpoint(HERE)
    assert ledger.expire(99.0) == []
    assert ledger.next_expiry() is None


# endpoints


def test_a_known_endpoint_keeps_its_slots(ledger: Ledger) -> None:
    """To add a known endpoint changes nothing."""
    ledger.open(HERE, 1, 1.0)
    ledger.add_endpoint(HERE, 2.0)
    assert ledger.endpoint_slots(HERE).leased_slots == 1


def test_an_endpoint_with_leases_cannot_be_removed(ledger: Ledger) -> None:
    """Not even with a draining one: it would never be released."""
    lease = left(ledger, 1.0)
    with pytest.raises(ValueError, match="still has leases"):
        ledger.remove_endpoint(HERE)
    ledger.expire(99.0)
    assert lease.state is LeaseState.CLOSED
    ledger.remove_endpoint(HERE)
    with pytest.raises(KeyError):
        ledger.endpoint_slots(HERE)
