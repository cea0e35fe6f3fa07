"""Claims about extproc/core/queue/affinity_wait.py."""

from __future__ import annotations

import sys

from extproc.core.address import Address
from extproc.core.options import DispatcherOptions
from extproc.core.queue.affinity_wait import AffinityWaits
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from tests.fakes.steered_fleet import SteeredFleet

CHAIN = tuple(range(1000, 1040))


def asked(**more: object) -> dict[str, object]:
    return {"prompt_blocks": CHAIN, "prompt_tokens": 2600, **more}


def test_it_waits_for_a_busy_endpoint_as_long_as_the_cache_would_save() -> None:
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65536), fleet.add(1, context_tokens=65536)
    chain = tuple(range(400))
    for address in (target, other):  # slots are held for half a second
        for _ in range(10):
            lease = fleet.pick(allowed=frozenset({address}))
            fleet.now += 0.5
            fleet.finish(lease)
    lease = fleet.pick(prompt_blocks=chain, prompt_tokens=26_000, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    waiting = fleet.queue(prompt_blocks=chain, prompt_tokens=26_000)
    assert waiting.pinned_to == target
    fleet.finish(lease)
    assert fleet.served(waiting).address == target
    patient = fleet.queue(prompt_blocks=chain, prompt_tokens=26_000)
    timer = fleet.dispatcher.next_wakeup()
    assert timer is not None
    fleet.now = timer
    fleet.dispatcher.advance(fleet.now)
    assert fleet.served(patient).address == other


def test_a_request_that_finds_the_queue_full_takes_the_free_endpoint() -> None:
    """A cache is worth a wait, and no rejection."""
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65536), fleet.add(1, context_tokens=65536)
    chain = tuple(range(400))
    asked = {"prompt_blocks": chain, "prompt_tokens": 26_000}
    lease = fleet.pick(**asked, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    waiting = fleet.queue(**asked)
    assert waiting.pinned_to == target
    fleet.dispatcher.withdraw(waiting, fleet.now)
    fleet.dispatcher.renew(DispatcherOptions(queue=QueueLimits(max_requests=0)))
    assert fleet.pick(**asked).address == other


def test_a_lost_affinity_target_is_not_waited_for() -> None:
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65536), fleet.add(1, context_tokens=65536)
    chain = tuple(range(400))
    lease = fleet.pick(prompt_blocks=chain, prompt_tokens=26_000, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    waiting = fleet.queue(prompt_blocks=chain, prompt_tokens=26_000)
    fleet.dispatcher.connect_failed(target, fleet.now)
    assert fleet.served(waiting).address == other


def test_after_its_affinity_wait_a_multi_slot_request_may_go_anywhere() -> None:
    """Its target has a reservation for it and lacks one slot: another endpoint has both, so it goes
    there."""
    fleet = SteeredFleet()
    target, other = fleet.add(2, context_tokens=65536), fleet.add(2, context_tokens=65536)
    chain = tuple(range(400))
    asked = {"prompt_blocks": chain, "prompt_tokens": 26_000}
    lease = fleet.pick(**asked, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    fleet.pick(allowed=frozenset({target}))
    multi_slot = fleet.queue(**asked, weight_slots=2)
    assert multi_slot.pinned_to == target
    fleet.finish(lease)
    assert multi_slot.reservation is not None and multi_slot.reserved_at == target
    timer = fleet.dispatcher.next_wakeup()
    assert timer is not None
    fleet.now = timer
    fleet.dispatcher.advance(fleet.now)
    assert fleet.served(multi_slot).address == other


def test_a_client_that_left_ends_its_affinity_wait() -> None:
    """Its affinity wait would have lasted for a while; nothing holds it for that time."""
    fleet = SteeredFleet()
    for _ in range(2):
        fleet.add(1, context_tokens=65536)
    lease = fleet.pick(prompt_blocks=CHAIN * 10, prompt_tokens=26_000)
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    waiting = fleet.queue(prompt_blocks=CHAIN * 10, prompt_tokens=26_000)
    assert waiting.pinned_to == lease.address
    fleet.dispatcher.withdraw(waiting, fleet.now)
    fleet.pick()
    plain = fleet.queue()
    fleet.dispatcher.withdraw(plain, fleet.now)
    assert sys.getrefcount(waiting) == sys.getrefcount(plain)


HERE, THERE = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)


class Pinned:
    """A queue with tickets that wait for an endpoint."""

    def __init__(self) -> None:
        self.queue = RequestQueue()
        self.waits = AffinityWaits(self.queue)

    def pin(self, address: Address, until: float) -> Ticket:
        ticket = self.queue.enter(Request(id="r", timeout_s=99.0), 0.0)
        self.waits.pin(ticket, address, until)
        return ticket


def test_a_pinned_ticket_may_go_to_its_endpoint_alone() -> None:
    """Until it is unpinned: then as its request says."""
    pinned = Pinned()
    ticket = pinned.pin(HERE, 5.0)
    assert ticket.constraints.allowed == frozenset({HERE}) and pinned.waits.is_pinned(ticket)
    pinned.waits.unpin(ticket)
    assert ticket.constraints == ticket.resolved.constraints
    assert not pinned.waits.is_pinned(ticket) and not list(pinned.waits.tickets())


def test_a_ticket_is_pinned_once_in_its_life() -> None:
    """It remembers its endpoint, so that it is not pinned again and again."""
    pinned = Pinned()
    ticket = pinned.pin(HERE, 5.0)
    pinned.waits.unpin(ticket)
    assert ticket.pinned_to == HERE


def test_tickets_are_counted_at_their_endpoint() -> None:
    pinned = Pinned()
    first, other = pinned.pin(HERE, 5.0), pinned.pin(THERE, 5.0)
    pinned.pin(HERE, 1.0)
    assert (pinned.waits.waiting_at(HERE), pinned.waits.waiting_at(THERE)) == (2, 1)
    assert pinned.waits.first_pinned_to(HERE) is first
    pinned.waits.left(other)
    assert pinned.waits.waiting_at(THERE) == 0 and pinned.waits.first_pinned_to(THERE) is None


def test_waits_expire_in_the_order_of_their_ends() -> None:
    """The last moment counts; each is returned once."""
    pinned = Pinned()
    late, early = pinned.pin(HERE, 5.0), pinned.pin(THERE, 3.0)
    assert pinned.waits.next_expiry() == 3.0 and pinned.waits.expired(2.9) == []
    assert pinned.waits.expired(5.0) == [early, late]
    assert pinned.waits.next_expiry() is None and pinned.waits.expired(9.0) == []


def test_a_ticket_that_left_does_not_expire() -> None:
    """Also if it leaves twice, or was never pinned."""
    pinned = Pinned()
    ticket, plain = pinned.pin(HERE, 3.0), pinned.queue.enter(Request(id="r", timeout_s=9.0), 0.0)
    for one in (ticket, ticket, plain):
        pinned.waits.left(one)
    assert pinned.waits.next_expiry() is None and pinned.waits.expired(9.0) == []


def test_a_pinned_ticket_that_left_the_queue_is_found() -> None:
    """The auditor reports it: nothing else would ever remove it."""
    pinned = Pinned()
    ticket = pinned.pin(HERE, 3.0)
    assert pinned.waits.faults() == []
    pinned.queue.leave(ticket)
    (fault,) = pinned.waits.faults()
    assert str(ticket.id) in fault and str(HERE) in fault
    pinned.waits.clear()
    assert pinned.waits.faults() == [] and pinned.waits.next_expiry() is None


def test_a_repair_ends_the_wait() -> None:
    """The ticket may go anywhere again, and is not pinned a second time."""
    pinned = Pinned()
    ticket, plain = pinned.pin(HERE, 5.0), pinned.queue.enter(Request(id="r", timeout_s=9.0), 0.0)
    pinned.queue.rebuild()
    pinned.waits.clear()
    assert ticket.constraints == ticket.resolved.constraints == plain.constraints
    assert not pinned.waits.is_pinned(ticket) and ticket.pinned_to == HERE
    assert pinned.queue.faults() == pinned.waits.faults() == []
