"""Claims about extproc/core/slots/uploads.py, alone and within the dispatcher."""

from __future__ import annotations

from dataclasses import replace

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Queued
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.scheduler.audit import faults, rebuild
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.uploads import MAX_TENANTS, MEMORY_S, MIN_WASTE_S, SUSPICION_S, Uploads
from tests.fakes.small_fleet import SmallFleet

UPLOAD = Request(id="u", timeout_s=60, is_partial=True)
WHOLE = Request(id="w", timeout_s=60)


def test_a_tenant_that_wastes_too_much_is_a_suspect_for_a_while() -> None:
    """One bad connection is no reason; old waste is forgotten; complete requests are not
    affected."""
    uploads = Uploads()
    uploads.failed(UPLOAD, MIN_WASTE_S, 1, 100.0)
    assert not uploads.is_suspect(UPLOAD, 100.0)
    uploads.failed(UPLOAD, MIN_WASTE_S / 2, 1, 100.0 + 2 * MEMORY_S)
    assert not uploads.is_suspect(UPLOAD, 100.0 + 2 * MEMORY_S)
    uploads.failed(UPLOAD, MIN_WASTE_S, 1, 110.0 + 2 * MEMORY_S)
    end = 110.0 + 2 * MEMORY_S + SUSPICION_S
    assert uploads.is_suspect(UPLOAD, end - 0.001)
    assert not uploads.is_suspect(WHOLE, end - 0.001)
    assert not uploads.is_suspect(UPLOAD, end)


def test_a_large_fleet_tolerates_more() -> None:
    uploads = Uploads()
    for _ in range(100):
        uploads.failed(UPLOAD, 1.25, 200, 100.0)
    assert not uploads.is_suspect(UPLOAD, 100.0)
    for _ in range(100):
        uploads.failed(UPLOAD, 1.25, 200, 100.0)
    assert uploads.is_suspect(UPLOAD, 100.0)


def test_one_tenant_does_not_make_suspects_of_others() -> None:
    """As many tenants are remembered as necessary, the last to fail."""
    uploads = Uploads()
    uploads.failed(replace(UPLOAD, tenant="bad"), 10.0, 4, 100.0)
    assert uploads.is_suspect(replace(UPLOAD, tenant="bad"), 100.0)
    assert not uploads.is_suspect(replace(UPLOAD, tenant="good"), 100.0)
    for number in range(MAX_TENANTS):
        uploads.failed(replace(UPLOAD, tenant=f"bad-{number}"), 10.0, 4, 100.0)
    assert not uploads.is_suspect(replace(UPLOAD, tenant="bad"), 100.0)
    assert uploads.is_suspect(replace(UPLOAD, tenant="bad-0"), 100.0)


def test_suspects_get_one_slot_in_eight_and_at_least_one() -> None:
    for slots, most in ((1, 1), (15, 1), (16, 2), (80, 10)):
        uploads = Uploads()
        uploads.failed(UPLOAD, 1000.0, slots, 100.0)
        for number in range(most):
            assert uploads.may_begin(UPLOAD, 100.0)
            uploads.upload_began(Lease(number, Address("10.0.0.1", 8080), 1, 100.0))
        assert not uploads.may_begin(UPLOAD, 100.0)
        assert uploads.may_begin(WHOLE, 100.0)


class Attacked:
    """A fleet whose uploads are suspects, once `suspect` was called."""

    def __init__(self, slots: int) -> None:
        self.fleet = SmallFleet(slots)
        self.dispatcher = self.fleet.dispatcher

    def submit(self, request: Request) -> Decision:
        return self.dispatcher.submit(request, self.fleet.now)

    def lease(self, request: Request) -> Lease:
        outcome = self.submit(request)
        assert isinstance(outcome, Picked)
        return outcome.lease

    def reason(self, request: Request) -> Reason:
        outcome = self.submit(request)
        assert isinstance(outcome, Rejected)
        return outcome.reason

    def suspect(self) -> None:
        self.dispatcher.upload_failed(UPLOAD, 100.0, self.fleet.now)


def test_a_suspects_uploads_take_one_slot_and_are_not_queued() -> None:
    """Complete requests find the others, and are queued as usual; the slot is free for the next
    once the rest of the body has come, the response has begun, or the exchange is over."""
    attacked = Attacked(4)
    attacked.suspect()
    for is_over in (
        attacked.dispatcher.upload_ended,
        lambda lease: attacked.dispatcher.responded(lease, attacked.fleet.now),
        lambda lease: attacked.dispatcher.release(lease, LeaseEnd.SERVED, attacked.fleet.now),
    ):
        first = attacked.lease(UPLOAD)
        assert attacked.reason(UPLOAD) is Reason.SHED
        is_over(first)
    held = [attacked.lease(UPLOAD), attacked.lease(WHOLE)]
    assert len(held) == 2 and attacked.reason(UPLOAD) is Reason.SHED
    assert isinstance(attacked.submit(WHOLE), Queued)


def test_queued_uploads_are_rejected_when_they_are_next() -> None:
    """So a queue full of slow uploads does not delay the requests behind them."""
    attacked = Attacked(2)
    first, second = attacked.lease(UPLOAD), attacked.lease(WHOLE)
    tickets = []
    for request in (UPLOAD, UPLOAD, UPLOAD, WHOLE):
        outcome = attacked.submit(request)
        assert isinstance(outcome, Queued)
        tickets.append(outcome.ticket)
    attacked.suspect()
    attacked.fleet.finish(second)
    assert [attacked.fleet.rejected(ticket).reason for ticket in tickets[:3]] == [Reason.SHED] * 3
    attacked.fleet.finish(attacked.fleet.handed(tickets[3]))
    attacked.fleet.finish(first)
    assert len(attacked.dispatcher.state.uploads) == 0


def test_without_suspicion_uploads_are_like_all_others() -> None:
    attacked = Attacked(2)
    leases = [attacked.lease(UPLOAD), attacked.lease(UPLOAD)]
    waiting = attacked.submit(UPLOAD)
    assert isinstance(waiting, Queued)
    attacked.fleet.finish(leases[0])
    assert attacked.fleet.handed(waiting.ticket)


def test_an_upload_without_a_lease_is_found_and_forgotten() -> None:
    """Otherwise a suspect would never get a slot again."""
    attacked = Attacked(2)
    state = attacked.dispatcher.state
    attacked.lease(UPLOAD)
    assert faults(state, attacked.fleet.now) == []
    state.uploads.upload_began(Lease(99, attacked.fleet.addresses[0], 1, 100.0))
    assert faults(state, attacked.fleet.now) == ["an upload of lease 99, which is not open"]
    rebuild(state)
    assert faults(state, attacked.fleet.now) == []
    assert len(state.uploads) == 1
