"""Claims about extproc/core/scheduler/dispatcher.py: requests, observations, and time."""

from __future__ import annotations

from collections import Counter

import pytest

from extproc.core.address import Address
from extproc.core.fleet.endpoint import ASSUMED_SLOTS, EndpointSpec, Intent
from extproc.core.fleet.health import Health
from extproc.core.observation import Issue, ScrapeStatus
from extproc.core.rejection import Reason, Rejected
from extproc.core.scheduler.decision import Picked, Queued
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.scheduler.fleet_updates import CONNECT_FAILED
from extproc.core.slots.lease import LeaseError
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

UNKNOWN = Address("10.9.9.9", 1)


# Picking


def test_the_largest_share_of_free_slots() -> None:
    """2 of 2 before 3 of 4, then 3 of 4 before 1 of 2."""
    fleet = SmallFleet(2, 4)
    small, large = fleet.addresses
    fleet.scrape(large, busy=1)
    assert [fleet.pick().address for _ in range(2)] == [small, large]


def test_every_slot_is_used_and_none_twice() -> None:
    """Six requests fill two and four slots; the seventh waits."""
    fleet = SmallFleet(2, 4)
    picked = [fleet.pick().address for _ in range(6)]
    assert sorted(map(picked.count, fleet.addresses)) == [2, 4]
    assert isinstance(fleet.submit(), Queued)


def test_fallbacks_are_the_next_in_order() -> None:
    """Two others, best first, without leases; fewer if the fleet has no more."""
    fleet = SmallFleet(8, 4, 2, 2)
    for address, busy in zip(fleet.addresses, (0, 1, 1, 2), strict=True):
        fleet.scrape(address, busy=busy)
    outcome = fleet.submit()
    assert isinstance(outcome, Picked)
    a, b, c, _ = fleet.addresses
    assert (outcome.lease.address, outcome.fallbacks) == (a, (b, c))
    assert fleet.account(b).leased_slots == 0
    lonely = SmallFleet(1).submit()
    assert isinstance(lonely, Picked) and lonely.fallbacks == ()


def test_no_fallbacks_if_none_are_configured() -> None:
    """The setting may be 0."""
    outcome = SmallFleet(2, 2, fallbacks=0).submit()
    assert isinstance(outcome, Picked) and outcome.fallbacks == ()


def test_changed_bounds_apply_at_once() -> None:
    """For picks, for pass-through requests, and for the queue."""
    fleet = SmallFleet(1, 1, 1)
    fleet.dispatcher.renew(DispatcherOptions(fallbacks=1, queue_max_requests=0))
    outcome = fleet.submit()
    assert isinstance(outcome, Picked) and len(outcome.fallbacks) == 1
    assert len(fleet.dispatcher.passing()) == 2
    fleet.pick(), fleet.pick()
    full = fleet.submit()
    assert isinstance(full, Rejected) and full.reason is Reason.QUEUE_FULL


def test_the_picked_endpoint_is_not_its_own_fallback() -> None:
    """Also if the lease made it the worst of all."""
    fleet = SmallFleet(1, 4, 4, 4)
    for address in fleet.addresses[1:]:
        fleet.scrape(address, busy=1)
    outcome = fleet.submit()
    assert isinstance(outcome, Picked)
    assert outcome.lease.address == fleet.addresses[0]
    assert len(outcome.fallbacks) == 2 and outcome.lease.address not in outcome.fallbacks


def test_foreign_slots_are_not_used() -> None:
    """A slot that a foreign request uses is not available."""
    fleet = SmallFleet(2)
    fleet.scrape(fleet.addresses[0], busy=1)
    fleet.pick()
    assert isinstance(fleet.submit(), Queued)


def test_pass_through_requests_need_no_slot() -> None:
    """They go to any serving endpoint, best first, also to full ones; to none if none serves."""
    fleet = SmallFleet(1, 1, 1, 1)
    for _ in range(4):
        fleet.pick()
    fleet.scrape(fleet.addresses[0], status=ScrapeStatus.UNREACHABLE, busy=None)
    assert len(fleet.dispatcher.passing()) == 3
    assert fleet.addresses[0] not in fleet.dispatcher.passing()
    assert SmallFleet().dispatcher.passing() == []


def test_a_pass_through_request_gets_the_best_allowed_endpoint() -> None:
    """Alternating between equals; a sleeping one only if there is no other."""
    fleet = SmallFleet(2, 2, 2, 2)
    _, asleep, *awake = fleet.addresses
    fleet.scrape(asleep, status=ScrapeStatus.ASLEEP)
    allowed = frozenset((asleep, *awake))
    first = Counter(fleet.dispatcher.passing(allowed)[0] for _ in range(100))
    assert set(first) == set(awake) and min(first.values()) > 25
    assert fleet.dispatcher.passing(frozenset({asleep})) == [asleep]
    assert fleet.dispatcher.passing(frozenset()) == []


# Waiting


def test_the_queue_is_served_in_order() -> None:
    """Seven requests are queued; each released slot goes to the first of them in the same call."""
    fleet = SmallFleet(2, 4)
    leases = [fleet.pick() for _ in range(6)]
    tickets = [fleet.queue() for _ in range(7)]
    for lease, ticket in zip(leases, tickets, strict=False):
        fleet.now += 1.0
        fleet.finish(lease)
        handed = fleet.listener.settlements[ticket.id]
        assert isinstance(handed, Picked)
        assert (handed.lease.address, handed.waited_s) == (lease.address, fleet.now - 100.0)
    assert list(fleet.dispatcher.queue) == tickets[6:]


def test_no_request_overtakes() -> None:
    """A single-slot arrival waits behind a multi-slot head, though a slot is free for it."""
    fleet = SmallFleet(2)
    running = fleet.pick()
    multi_slot = fleet.queue(weight_slots=2)
    light = fleet.queue()
    assert fleet.account(fleet.addresses[0]).free_slots == 1
    fleet.finish(running)
    assert fleet.handed(multi_slot).weight_slots == 2
    fleet.finish(fleet.handed(multi_slot))
    assert fleet.handed(light).weight_slots == 1


def test_the_next_request_is_served_after_the_head_left() -> None:
    """No wake-up is lost with a withdrawn or cancelled head."""
    for ends in ("withdraw", "cancel"):
        fleet = SmallFleet(2)
        fleet.pick()
        multi_slot, light = fleet.queue(weight_slots=2), fleet.queue()
        getattr(fleet.dispatcher, ends)(multi_slot, fleet.now)
        assert fleet.handed(light).weight_slots == 1


def test_a_multi_slot_head_that_times_out_lets_the_next_through() -> None:
    """The same for one whose deadline passed."""
    fleet = SmallFleet(2)
    fleet.pick()
    multi_slot, light = fleet.queue(weight_slots=2, timeout_s=1.0), fleet.queue()
    fleet.pass_time(1.0)
    assert fleet.rejected(multi_slot).reason is Reason.QUEUE_TIMEOUT
    assert fleet.handed(light).weight_slots == 1


def test_a_withdrawn_request_gets_nothing() -> None:
    """It leaves the queue, is never settled, and may be withdrawn once more."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    ticket = fleet.queue()
    fleet.dispatcher.withdraw(ticket, fleet.now)
    fleet.dispatcher.withdraw(ticket, fleet.now)
    fleet.finish(running)
    assert fleet.listener.settlements == {}
    assert fleet.account(fleet.addresses[0]).leases == {}


def test_a_settled_request_is_not_cancelled() -> None:
    """An operator who cancels too late changes nothing."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    ticket = fleet.queue()
    fleet.finish(running)
    fleet.dispatcher.cancel(ticket, fleet.now)
    fleet.dispatcher.withdraw(ticket, fleet.now)
    assert fleet.account(fleet.addresses[0]).leases == {
        fleet.handed(ticket).id: fleet.handed(ticket)
    }


def test_a_cancelled_request_is_settled() -> None:
    """Its client gets the reason, and how long it had waited."""
    fleet = SmallFleet(1)
    fleet.pick()
    ticket = fleet.queue()
    fleet.now += 3.0
    fleet.dispatcher.cancel(ticket, fleet.now)
    assert (fleet.rejected(ticket).reason, fleet.rejected(ticket).waited_s) == (
        Reason.CANCELLED,
        3.0,
    )


@pytest.mark.parametrize("queue_max_requests", [0, 1, 3])
def test_a_full_queue(queue_max_requests: int) -> None:
    """The bound is exact from 0 up, and has its own reason with status 429."""
    fleet = SmallFleet(1, queue_max_requests=queue_max_requests)
    fleet.pick()
    for _ in range(queue_max_requests):
        fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.waited_s) == (Reason.QUEUE_FULL, 0.0)


def test_a_free_slot_needs_no_queue() -> None:
    """Neither a queue of 0 nor a timeout of 0 rejects what can be served at once."""
    fleet = SmallFleet(1, queue_max_requests=0)
    assert isinstance(fleet.submit(timeout_s=0.0), Picked)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_timeout_of_zero(timeout_s: float) -> None:
    """A request that may not wait is rejected at once, and leaves no ticket."""
    fleet = SmallFleet(1)
    fleet.pick()
    outcome = fleet.submit(timeout_s=timeout_s)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.QUEUE_TIMEOUT
    assert len(fleet.dispatcher.queue) == 0


def test_deadlines_in_their_own_order() -> None:
    """The shortest timeout is rejected first, at its time; no slot is assigned to it."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    patient, impatient = fleet.queue(timeout_s=9.0), fleet.queue(timeout_s=3.0)
    fleet.pass_time(2.999)
    assert fleet.listener.settlements == {}
    fleet.pass_time(0.001)
    rejected = fleet.rejected(impatient)
    assert (rejected.reason, rejected.waited_s) == (Reason.QUEUE_TIMEOUT, 3.0)
    fleet.finish(running)
    assert fleet.handed(patient).address == fleet.addresses[0]
    assert len(fleet.account(fleet.addresses[0]).leases) == 1


def test_without_any_endpoint_requests_wait() -> None:
    """Scale from zero: the first endpoint that appears serves them, up to its slots."""
    fleet = SmallFleet()
    tickets = [fleet.queue() for _ in range(3)]
    address = fleet.add(2)
    assert [fleet.handed(ticket).address for ticket in tickets[:2]] == [address, address]
    assert list(fleet.dispatcher.queue) == tickets[2:]


def test_without_any_endpoint_the_reason_is_no_endpoint() -> None:
    """A full queue, a timeout of 0, or a deadline: no endpoint serves, so the reason is
    `no-endpoint`."""
    outcome = SmallFleet(queue_max_requests=0).submit()
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.NO_ENDPOINT
    fleet = SmallFleet()
    outcome = fleet.submit(timeout_s=0.0)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.NO_ENDPOINT
    ticket = fleet.queue(timeout_s=1.0)
    fleet.pass_time(1.0)
    assert fleet.rejected(ticket).reason is Reason.NO_ENDPOINT


@pytest.mark.parametrize(
    ("lost", "reason"), [((1,), Reason.NO_ENDPOINT), ((2,), Reason.QUEUE_TIMEOUT)]
)
def test_without_any_eligible_endpoint_the_reason_is_no_endpoint(
    lost: tuple[int, ...], reason: Reason
) -> None:
    """A gateway allowed one of two, and while its request is queued that one goes down."""
    fleet = SteeredFleet()
    only, _ = fleet.add(1), fleet.add(1)
    for _ in range(2):
        fleet.pick()
    ticket = fleet.queue(timeout_s=5.0, allowed=frozenset({only}))
    for number in lost:
        fleet.dispatcher.connect_failed(fleet.addresses[number - 1], fleet.now)
    fleet.now += 5.0
    fleet.dispatcher.advance(fleet.now)
    settlement = fleet.listener.settlements[ticket.id]
    assert isinstance(settlement, Rejected) and settlement.reason is reason


def test_retry_after_follows_the_queue() -> None:
    """An assignment every 5 s and two queued requests: 15 s."""
    fleet = SmallFleet(1, queue_max_requests=4)
    lease = fleet.pick()
    tickets = [fleet.queue() for _ in range(4)]
    for ticket in tickets[:2]:
        fleet.now += 5.0
        fleet.finish(lease)
        lease = fleet.handed(ticket)
    fleet.queue()
    fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected)
    assert outcome.retry_after_s == pytest.approx(25.0)


def test_retry_after_is_between_a_second_and_a_minute() -> None:
    """While nothing is known yet, and if each request waits for an hour."""
    fleet = SmallFleet(1, queue_max_requests=1)
    lease = fleet.pick()
    ticket = fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 1.0
    for _ in range(3):
        fleet.now += 3600.0
        fleet.finish(lease)
        lease, ticket = fleet.handed(ticket), fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 60.0


def test_an_empty_queue_is_not_slow() -> None:
    """Time with an empty queue does not lengthen the retry time."""
    fleet = SmallFleet(1, queue_max_requests=1)
    lease = fleet.pick()
    for gap in (5.0, 5.0, 3600.0, 5.0):
        ticket = fleet.queue()
        fleet.now += gap
        fleet.finish(lease)
        lease = fleet.handed(ticket)
    fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s < 30.0


# Releasing


def test_a_release_happens_once() -> None:
    """The second is a bug of the caller; the next queued request does not profit from it."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    first, second = fleet.queue(), fleet.queue()
    fleet.finish(lease)
    with pytest.raises(LeaseError):
        fleet.finish(lease)
    assert set(fleet.listener.settlements) == {first.id}
    assert list(fleet.dispatcher.queue) == [second]


def test_an_abandoned_slot_is_free_once_a_scrape_proves_it() -> None:
    """Until then the next request waits; a scrape is requested at once."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    lease = fleet.pick()
    ticket = fleet.queue()
    fleet.abandon(lease)
    assert fleet.listener.unsure == [address]
    assert fleet.listener.settlements == {}
    assert fleet.dispatcher.needs_frequent_scrapes(address)
    fleet.now += 1.0
    fleet.scrape(address, busy=0)
    assert fleet.handed(ticket).address == address


def test_an_abandoned_slot_is_free_at_its_cap() -> None:
    """The timer wakes the dispatcher for it without any other event."""
    fleet = SmallFleet()
    ticket = fleet.queue(timeout_s=100.0)
    blind = fleet.add(1, busy=None)
    fleet.abandon(fleet.handed(ticket))
    waiting = fleet.queue(timeout_s=100.0)
    fleet.pass_time(0.999)
    assert waiting.is_waiting
    fleet.pass_time(0.001)
    assert fleet.handed(waiting).address == blind


def test_the_lease_follows_the_server() -> None:
    """The picked slot is free for the next request at once, and the other server's is leased."""
    fleet = SmallFleet(1, 1)
    lease = fleet.pick()
    picked, other = lease.address, next(a for a in fleet.addresses if a != lease.address)
    fleet.pick()
    ticket = fleet.queue()
    fleet.dispatcher.served_by(lease, other, fleet.now)
    assert fleet.handed(ticket).address == picked
    assert fleet.account(other).leased_slots == 2
    fleet.dispatcher.served_by(lease, other, fleet.now)
    assert fleet.account(other).leased_slots == 2
    fleet.finish(lease)
    assert fleet.account(other).leased_slots == 1


def test_a_server_outside_the_fleet_has_no_slots() -> None:
    """The lease stays where it was picked, and ends there."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    fleet.dispatcher.served_by(lease, UNKNOWN, fleet.now)
    assert lease.address == fleet.addresses[0]
    fleet.finish(lease)
    assert fleet.account(fleet.addresses[0]).leases == {}


def test_a_removed_endpoint_is_forgotten_when_its_last_lease_moves() -> None:
    """Its last lease is gone, though none was released."""
    fleet = SmallFleet(1, 1)
    lease = fleet.pick()
    picked, other = lease.address, next(a for a in fleet.addresses if a != lease.address)
    fleet.name(other)
    assert picked in fleet.dispatcher.fleet
    fleet.dispatcher.served_by(lease, other, fleet.now)
    assert picked not in fleet.dispatcher.fleet


# Observations


def test_more_slots_serve_the_queue() -> None:
    """A server that was restarted with more slots is filled in the call that reports it."""
    fleet = SmallFleet(1)
    fleet.pick()
    tickets = [fleet.queue() for _ in range(4)]
    fleet.scrape(fleet.addresses[0], busy=1, slots=4)
    assert set(fleet.listener.settlements) == {ticket.id for ticket in tickets[:3]}


def test_fewer_slots_hold_the_queue() -> None:
    """Running requests continue; no request is picked until fewer run than there are slots."""
    fleet = SmallFleet(4)
    leases = [fleet.pick() for _ in range(4)]
    fleet.scrape(fleet.addresses[0], busy=4, slots=2)
    ticket = fleet.queue()
    for lease in leases[:2]:
        fleet.finish(lease)
        assert ticket.is_waiting
    fleet.finish(leases[2])
    assert not ticket.is_waiting


def test_a_replaced_server_frees_draining_leases() -> None:
    """A new process at the same address has no slots of the clients that left."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    fleet.scrape(address, instance="a")
    fleet.abandon(fleet.pick())
    ticket = fleet.queue()
    fleet.now += 1.0
    fleet.scrape(address, busy=0, instance="b")
    assert fleet.handed(ticket).address == address


def test_a_server_that_reports_no_slots_has_one() -> None:
    """Until a scrape or the operator reports more."""
    fleet = SmallFleet()
    address = fleet.add(None)
    fleet.scrape(address, busy=None, slots=None)
    assert fleet.account(address).slots == ASSUMED_SLOTS == 1
    fleet.scrape(address, busy=None, slots=3)
    assert fleet.account(address).slots == 3
    fleet.scrape(address, busy=None, slots=None)
    assert fleet.account(address).slots == 3


def test_the_operators_slots_override_the_servers() -> None:
    """Also if the server reports another number, and if it reports none."""
    fleet = SmallFleet()
    address = Address("10.0.0.1", 8080)
    specs = [EndpointSpec(address=address, slots=3)]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    for slots in (None, 8):
        fleet.scrape(address, busy=None, slots=slots)
        assert fleet.account(address).slots == 3


def test_an_observation_of_an_unknown_endpoint_is_ignored() -> None:
    """It may have left the fleet during the scrape."""
    fleet = SmallFleet(1)
    fleet.scrape(UNKNOWN)
    assert UNKNOWN not in fleet.dispatcher.fleet


def test_an_outdated_scrape_does_not_revive_a_dead_server() -> None:
    """Nor does it make a live one down."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    fleet.now = 110.0
    fleet.scrape(address, status=ScrapeStatus.UNREACHABLE, busy=None)
    fleet.scrape(address, began_at=109.0)
    assert fleet.endpoint(address).health is Health.DOWN
    fleet.now = 120.0
    fleet.scrape(address)
    fleet.scrape(address, status=ScrapeStatus.UNREACHABLE, busy=None, began_at=119.0)
    assert fleet.endpoint(address).health is Health.READY


@pytest.mark.parametrize("status", [ScrapeStatus.UNREACHABLE, ScrapeStatus.LOADING])
def test_a_server_that_cannot_serve_gets_no_requests(status: ScrapeStatus) -> None:
    """Its running requests keep their leases; a queued request gets the next slot elsewhere."""
    fleet = SmallFleet(2)
    address = fleet.addresses[0]
    lease = fleet.pick()
    fleet.scrape(address, status=status, busy=None)
    ticket = fleet.queue()
    fleet.finish(lease)
    assert ticket.is_waiting
    fleet.scrape(address)
    assert fleet.handed(ticket).address == address


def test_a_connection_that_envoy_could_not_make() -> None:
    """Down at once, with an issue; only a scrape that begins later brings it back."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    fleet.now = 110.0
    fleet.dispatcher.connect_failed(address, fleet.now)
    fleet.dispatcher.connect_failed(UNKNOWN, fleet.now)
    endpoint = fleet.endpoint(address)
    assert (endpoint.health, endpoint.issues) == (Health.DOWN, (CONNECT_FAILED,))
    assert fleet.listener.unsure == [address]
    ticket = fleet.queue()
    fleet.scrape(address, began_at=109.9)
    assert ticket.is_waiting
    fleet.scrape(address)
    assert fleet.handed(ticket).address == address


def test_an_old_observation_makes_a_backup() -> None:
    """Six seconds without a scrape: others first, but it still serves when they are full."""
    fleet = SmallFleet(4, 4, stale_after_s=6.0)
    stale, fresh = fleet.addresses
    fleet.pass_time(5.0)
    fleet.scrape(fresh, busy=3)
    fleet.pass_time(1.0)
    assert not fleet.endpoint(stale).is_fresh
    assert [fleet.pick().address for _ in range(2)] == [fresh, stale]
    fleet.scrape(stale)
    assert fleet.endpoint(stale).is_fresh


@pytest.mark.parametrize("again", [0, 1])
def test_each_endpoint_ages_by_itself(again: int) -> None:
    """The timer fires for each at its time, in any order of scrapes."""
    fleet = SmallFleet(1, 1, stale_after_s=6.0)
    fleet.pass_time(3.0)
    fleet.scrape(fleet.addresses[again])
    fleet.pass_time(3.0)
    fresh = [fleet.endpoint(address).is_fresh for address in fleet.addresses]
    assert fresh == [again == 0, again == 1]
    fleet.pass_time(3.0)
    assert not any(fleet.endpoint(address).is_fresh for address in fleet.addresses)


def test_uncounted_slots_become_stale() -> None:
    """A server that stopped to report its slots is a backup; one that never did is not, and one
    that was left alone, so that it may fall asleep, keeps its last count."""
    fleet = SmallFleet(1, 1, stale_after_s=6.0)
    stalled, quiet = fleet.addresses
    blind = fleet.add(1, busy=None)
    fleet.pass_time(4.0)
    slow = Issue(code="slow-slots", message="it stalls", remedy="wait")
    fleet.scrape(stalled, busy=None, issues=(slow,))
    fleet.scrape(quiet, busy=None)
    fleet.scrape(blind, busy=None)
    fleet.pass_time(2.0)
    fresh = [fleet.endpoint(address).is_fresh for address in (stalled, quiet, blind)]
    assert fresh == [False, True, True]


# Membership


def test_a_removed_endpoint_finishes_its_requests() -> None:
    """It gets no new ones, and is forgotten with its last lease."""
    fleet = SmallFleet(2)
    address = fleet.addresses[0]
    lease = fleet.pick()
    fleet.name()
    ticket = fleet.queue()
    assert address in fleet.dispatcher.fleet and fleet.dispatcher.passing() == []
    changes = fleet.listener.membership_changes
    fleet.finish(lease)
    assert address not in fleet.dispatcher.fleet and ticket.is_waiting
    assert fleet.listener.membership_changes == changes + 1
    with pytest.raises(KeyError):
        fleet.account(address)


def test_a_removed_endpoint_drains_to_its_end() -> None:
    """A lease whose client left is its last one too: a scrape or the cap ends it."""
    for ending in ("scrape", "cap"):
        fleet = SmallFleet(1)
        address = fleet.addresses[0]
        lease = fleet.pick()
        fleet.name()
        fleet.abandon(lease)
        assert address in fleet.dispatcher.fleet
        if ending == "scrape":
            fleet.now += 1.0
            fleet.scrape(address, busy=0)
        else:
            fleet.pass_time(10.0)
        assert address not in fleet.dispatcher.fleet


def test_an_endpoint_that_returns_keeps_its_leases() -> None:
    """Named again while a request still ran: the request is counted."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    fleet.name()
    fleet.name(*fleet.addresses)
    ticket = fleet.queue()
    fleet.finish(lease)
    assert fleet.handed(ticket).address == fleet.addresses[0]


def test_an_endpoint_that_was_forgotten_is_new() -> None:
    """Nothing is known of it until it is scraped; an older scrape does not count."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    fleet.now = 110.0
    fleet.name()
    fleet.name(address)
    fleet.scrape(address, began_at=109.0)
    assert fleet.endpoint(address).health is Health.LOADING
    fleet.scrape(address, slots=1)
    assert fleet.pick().address == address


def test_no_request_is_assigned_to_an_endpoint_during_its_removal() -> None:
    """One call removes a half free endpoint, adds another, and serves a mixed queue."""
    fleet = SmallFleet(2)
    old = fleet.addresses[0]
    fleet.pick()
    multi_slot, light = fleet.queue(weight_slots=2), fleet.queue()
    new = Address("10.0.0.1", 9000)
    fleet.name(new)
    assert multi_slot.is_waiting and light.is_waiting
    fleet.scrape(new, slots=2)
    assert fleet.handed(multi_slot).address == new
    assert light.is_waiting and fleet.account(old).free_slots == 1


def test_membership_changes_are_announced_once() -> None:
    """And not at all if a source repeats itself."""
    fleet = SmallFleet(1, 1)
    changes = fleet.listener.membership_changes
    fleet.name(*fleet.addresses)
    assert fleet.listener.membership_changes == changes
    fleet.name(*fleet.addresses, UNKNOWN)
    assert fleet.listener.membership_changes == changes + 1
    fleet.name(fleet.addresses[0], UNKNOWN)
    assert fleet.listener.membership_changes > changes + 1


@pytest.mark.parametrize("intent", [Intent.DRAINING, Intent.DISABLED])
def test_an_endpoint_that_the_operator_drains(intent: Intent) -> None:
    """It finishes its requests and takes no new ones, until it is active again."""
    fleet = SmallFleet(2)
    address = fleet.addresses[0]
    lease = fleet.pick()
    changes = fleet.listener.membership_changes
    fleet.dispatcher.set_intent(address, intent, fleet.now)
    assert fleet.listener.membership_changes == changes + 1
    ticket = fleet.queue()
    fleet.finish(lease)
    assert ticket.is_waiting and address in fleet.dispatcher.fleet
    fleet.dispatcher.set_intent(address, Intent.ACTIVE, fleet.now)
    assert fleet.handed(ticket).address == address
    with pytest.raises(KeyError):
        fleet.dispatcher.set_intent(UNKNOWN, intent, fleet.now)


def test_an_endpoint_that_envoy_does_not_know_yet() -> None:
    """It is pickable from the acknowledgement on."""
    fleet = SmallFleet()
    address = fleet.add(None)
    fleet.dispatcher.set_routable(address, False, fleet.now)
    fleet.dispatcher.set_routable(UNKNOWN, True, fleet.now)
    fleet.scrape(address, slots=1)
    ticket = fleet.queue()
    fleet.dispatcher.set_routable(address, True, fleet.now)
    assert fleet.handed(ticket).address == address


# Scrape frequency


def test_endpoints_that_need_frequent_scrapes() -> None:
    """Foreign slots, draining leases, failures and servers that start; not what leases explain."""
    fleet = SmallFleet(2, 2)
    calm, busy = fleet.addresses
    fleet.scrape(busy, busy=1)
    assert [fleet.dispatcher.needs_frequent_scrapes(a) for a in (calm, busy, UNKNOWN)] == [
        False,
        True,
        False,
    ]
    fleet.scrape(busy, busy=0)
    lease = fleet.pick()
    assert not fleet.dispatcher.needs_frequent_scrapes(lease.address)
    fleet.abandon(lease)
    assert fleet.dispatcher.needs_frequent_scrapes(lease.address)
    fleet.scrape(calm, status=ScrapeStatus.FAILED, busy=None)
    assert fleet.dispatcher.needs_frequent_scrapes(calm)
    assert fleet.dispatcher.needs_frequent_scrapes(fleet.add(None))


def test_endpoints_with_leases() -> None:
    """Open and draining leases count alike; an unknown endpoint has none."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    assert not fleet.dispatcher.has_leases(address)
    lease = fleet.pick()
    assert fleet.dispatcher.has_leases(address)
    fleet.abandon(lease)
    assert fleet.dispatcher.has_leases(address)
    assert not fleet.dispatcher.has_leases(UNKNOWN)


# Shutting down


def test_closing_rejects_all_requests() -> None:
    """Queued requests and arrivals are rejected as we shut down; running requests continue."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    tickets = [fleet.queue() for _ in range(2)]
    fleet.now += 2.0
    fleet.dispatcher.close(fleet.now)
    for ticket in tickets:
        assert fleet.rejected(ticket).reason is Reason.SHUTTING_DOWN
        assert fleet.rejected(ticket).waited_s == 2.0
    fleet.finish(lease)
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.SHUTTING_DOWN
    fleet.dispatcher.close(fleet.now)
    assert len(fleet.listener.settlements) == 2


# Time


def test_nothing_to_wait_for() -> None:
    """An idle dispatcher requests no wake-up; one with tickets requests it for the first
    deadline."""
    fleet = SmallFleet()
    assert (fleet.dispatcher.next_wakeup(), fleet.listener.timer) == (None, None)
    fleet.queue(timeout_s=5.0)
    fleet.queue(timeout_s=3.0)
    assert fleet.dispatcher.next_wakeup() == fleet.listener.timer == 103.0


def test_an_early_wake_up_does_nothing() -> None:
    """And requests the right time again: an event loop may wake up a moment early."""
    fleet = SmallFleet(1, stale_after_s=6.0)
    fleet.listener.timer = None
    fleet.dispatcher.advance(fleet.now)
    assert fleet.listener.timer == 106.0


def test_the_loss_of_a_server_is_explained_until_it_is_back() -> None:
    """Its issues are those of the last scrape."""
    fleet = SmallFleet(1)
    endpoint = fleet.endpoint(fleet.addresses[0])
    fleet.dispatcher.connect_failed(endpoint.address, fleet.now)
    fleet.scrape(endpoint.address)
    assert (endpoint.health, endpoint.issues) == (Health.READY, ())
    assert fleet.pick().address == endpoint.address
