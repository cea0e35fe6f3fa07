"""Claims about extproc/core/scheduler/fleet_updates.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import ASSUMED_SLOTS, EndpointSpec, Intent
from extproc.core.fleet.health import Health
from extproc.core.observation import Issue, ScrapeStatus
from extproc.core.queue.limits import QueueLimits
from extproc.core.rejection import Reason, Rejected
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.scheduler.fleet_updates import CONNECT_FAILED
from extproc.core.selection.ranking import Fallbacks
from extproc.core.slots.lease import LeaseEnd
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

UNKNOWN = Address("10.9.9.9", 1)


def test_changed_bounds_apply_at_once() -> None:
    """For picks, for pass-through requests, and for the queue."""
    fleet = SmallFleet(1, 1, 1)
    fleet.dispatcher.renew(
        DispatcherOptions(fallbacks=Fallbacks(limit=1), queue=QueueLimits(max_requests=0))
    )
    outcome = fleet.submit()
    assert isinstance(outcome, Picked) and len(outcome.fallbacks) == 1
    assert len(fleet.dispatcher.passing()) == 2
    fleet.pick(), fleet.pick()
    full = fleet.submit()
    assert isinstance(full, Rejected) and full.reason is Reason.QUEUE_FULL


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


def test_endpoints_of_a_large_fleet_age_more_slowly() -> None:
    """They are scraped less often, as scrapes are bounded."""
    fleet = SmallFleet(1, 1, 1, stale_after_s=6.0, stale_per_endpoint_s=4.0)
    fleet.scrape(fleet.addresses[0])
    fleet.pass_time(11.0)
    assert fleet.endpoint(fleet.addresses[0]).is_fresh
    fleet.pass_time(1.0)
    assert not fleet.endpoint(fleet.addresses[0]).is_fresh


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


def test_a_problem_of_envoy_is_shown_with_its_endpoint() -> None:
    """Until Envoy has it no more; one of an unknown endpoint is ignored."""
    fleet = SmallFleet(1)
    address, issue = fleet.addresses[0], Issue(code="c", message="m", remedy="r")
    for one in (address, UNKNOWN):
        fleet.dispatcher.set_envoy_issue(one, issue)
    assert issue in fleet.endpoint(address).issues
    fleet.dispatcher.set_envoy_issue(address, None)
    assert fleet.endpoint(address).issues == ()


@pytest.mark.parametrize("is_reported", [False, True])
def test_an_agent_is_asked_to_scrape_again_while_a_slot_may_be_in_use(is_reported: bool) -> None:
    """After a client left; our own scraper returns often by itself."""
    fleet = SmallFleet()
    address = Address("10.0.0.1", 8000)
    spec = EndpointSpec(address=address, is_reported=is_reported)
    fleet.dispatcher.set_members("test", [spec], fleet.now)
    fleet.addresses.append(address)
    fleet.scrape(address, slots=1)
    fleet.abandon(fleet.pick())
    fleet.now += 0.1
    fleet.scrape(address, busy=1)
    fleet.listener.unsure.clear()
    fleet.pass_time(5.0)
    assert bool(fleet.listener.unsure) is is_reported


def test_an_endpoint_that_left_does_not_become_stale() -> None:
    fleet = SmallFleet(1, 1, stale_after_s=5.0)
    first, second = fleet.addresses
    fleet.name(second)
    fleet.pass_time(10.0)
    assert first not in fleet.dispatcher.fleet and not fleet.endpoint(second).is_fresh


def test_a_server_without_room_in_its_cache_gets_no_request_that_takes_a_slot() -> None:
    """Whatever slots are free: they count as unusable, not as use by others. What takes no slot
    still goes there, and the next scrape that shows room serves who waits."""
    fleet = SteeredFleet()
    address = fleet.add(4)
    lease = fleet.pick()
    fleet.now += 1.0
    fleet.scrape(address, slots=4, busy_slots=1, is_full=True)
    waiting = fleet.queue()
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    counts = fleet.dispatcher.view.slot_counts(endpoint)
    assert (counts.leased, counts.foreign, counts.idle, counts.unusable) == (1, 0, 0, 3)
    assert fleet.dispatcher.passing() == [address]
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert waiting.is_waiting, "nothing shows yet that there is room"
    fleet.now += 1.0
    fleet.scrape(address, slots=4, busy_slots=0)
    assert fleet.served(waiting).address == address
    assert fleet.dispatcher.faults(fleet.now) == []


def test_another_server_serves_while_one_has_no_room() -> None:
    fleet = SteeredFleet()
    full, other = fleet.add(8), fleet.add(1)
    fleet.now += 1.0
    fleet.scrape(full, slots=8, busy_slots=0, is_full=True)
    assert fleet.pick().address == other
    assert fleet.queue().is_waiting
