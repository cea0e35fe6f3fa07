"""Claims about extproc/core/views/view.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.fleet.health import Health
from extproc.core.observation import ScrapeStatus
from extproc.core.views.view import SlotCounts
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

UNKNOWN = Address("10.9.9.9", 1)


def test_endpoints_that_need_frequent_scrapes() -> None:
    """Foreign slots, draining leases, failures and servers that start; not what leases explain."""
    fleet = SmallFleet(2, 2)
    calm, busy = fleet.addresses
    fleet.scrape(busy, busy=1)
    assert [fleet.dispatcher.view.needs_frequent_scrapes(a) for a in (calm, busy, UNKNOWN)] == [
        False,
        True,
        False,
    ]
    fleet.scrape(busy, busy=0)
    lease = fleet.pick()
    assert not fleet.dispatcher.view.needs_frequent_scrapes(lease.address)
    fleet.abandon(lease)
    assert fleet.dispatcher.view.needs_frequent_scrapes(lease.address)
    fleet.scrape(calm, status=ScrapeStatus.FAILED, busy=None)
    assert fleet.dispatcher.view.needs_frequent_scrapes(calm)
    assert fleet.dispatcher.view.needs_frequent_scrapes(fleet.add(None))


def test_endpoints_with_leases() -> None:
    """Open and draining leases count alike; an unknown endpoint has none."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    assert not fleet.dispatcher.view.has_leases(address)
    lease = fleet.pick()
    assert fleet.dispatcher.view.has_leases(address)
    fleet.abandon(lease)
    assert fleet.dispatcher.view.has_leases(address)
    assert not fleet.dispatcher.view.has_leases(UNKNOWN)


def test_what_a_dispatcher_knows_of_unknown_endpoints() -> None:
    fleet = SmallFleet(1)
    assert not fleet.dispatcher.view.has_leases(UNKNOWN)
    assert fleet.dispatcher.view.ejection_totals(UNKNOWN) == {}
    with pytest.raises(KeyError):
        fleet.dispatcher.view.slots_at(UNKNOWN)


def test_leases_are_wanted_while_requests_that_could_use_them_are_queued() -> None:
    """Also by a multi-slot request with a reservation."""
    fleet = SmallFleet(2)
    one, other = fleet.pick(), fleet.pick()
    assert not fleet.dispatcher.view.is_wanted(one)
    ticket = fleet.queue(weight_slots=2)
    assert fleet.dispatcher.view.is_wanted(one)
    fleet.finish(other)
    assert ticket.reservation is not None and fleet.dispatcher.view.is_wanted(one)
    fleet.finish(one)
    assert not fleet.dispatcher.view.is_wanted(fleet.handed(ticket))


def test_sizes_have_no_errors_in_the_order_of_arrival() -> None:
    fleet = SmallFleet(1)
    fleet.finish(fleet.pick())
    assert fleet.dispatcher.view.size_errors() == {}


def test_demands_are_counted_by_model() -> None:
    """Requests that name none count by themselves; constraints of one model are added up."""
    fleet = SteeredFleet()
    address = fleet.add(1, models=["m", "n"])
    fleet.pick(model="m")
    fleet.queue(model="m")
    fleet.now += 2.0
    fleet.queue(model="m", allowed=frozenset({address}))
    fleet.queue(model="n")
    fleet.queue()
    fleet.now += 1.0
    demands = fleet.dispatcher.view.demands(fleet.now)
    assert {name: one.waiting for name, one in demands.items()} == {"m": 2, "n": 1, None: 1}
    assert demands["m"].longest_wait_s == 3.0 and demands["m"].waited_s == 4.0
    assert demands["n"].longest_wait_s == demands["n"].waited_s == 1.0


def test_what_was_learned_of_an_endpoint_has_a_weight() -> None:
    fleet = SteeredFleet()
    address = fleet.add(1, models=["m"])
    assert fleet.dispatcher.view.latency_at(address, fleet.now)[1] == 0.0
    assert fleet.dispatcher.view.canonical_model("m") == "m"
    assert fleet.dispatcher.view.canonical_model("unknown") == "unknown"
    assert fleet.dispatcher.view.slo_totals() == {}


def test_positions_are_those_of_each_ticket() -> None:
    fleet = SteeredFleet()
    fleet.add(1)
    fleet.pick()
    tickets = [fleet.queue() for _ in range(3)]
    dispatcher = fleet.dispatcher
    together = list(dispatcher.view.positions_of(tickets, fleet.now))
    assert together == [dispatcher.view.position_of(ticket, fleet.now) for ticket in tickets]
    assert [one.position for one in together] == [1, 2, 3]


def counts(fleet: SmallFleet) -> SlotCounts:
    return fleet.dispatcher.view.slot_counts(fleet.endpoint(fleet.addresses[0]))


def busy_fleet() -> SmallFleet:
    """One server of four slots: one request runs, one client left, one slot is foreign."""
    fleet = SmallFleet(4)
    fleet.pick()
    left = fleet.pick()
    fleet.now += 1.0
    fleet.scrape(fleet.addresses[0], busy=3)
    fleet.abandon(left)
    return fleet


def test_the_slots_of_a_server_that_serves() -> None:
    """A draining lease is one of the leased slots."""
    expected = SlotCounts(total=4, leased=2, draining=1, foreign=1, idle=1, unusable=0)
    assert counts(busy_fleet()) == expected


def test_the_slots_of_a_dead_server_are_unusable() -> None:
    """Neither foreign, nor leased for clients that left; those that still wait hold theirs, until
    their streams end."""
    fleet = busy_fleet()
    lease = next(iter(fleet.account(fleet.addresses[0]).leases.values()))
    fleet.now += 1.0
    fleet.scrape(fleet.addresses[0], busy=None, status=ScrapeStatus.UNREACHABLE)
    assert fleet.endpoint(fleet.addresses[0]).health is Health.DOWN
    expected = SlotCounts(total=4, leased=1, draining=0, foreign=0, idle=0, unusable=3)
    assert counts(fleet) == expected
    fleet.abandon(lease)
    expected = SlotCounts(total=4, leased=0, draining=0, foreign=0, idle=0, unusable=4)
    assert counts(fleet) == expected


def test_a_drained_server_still_works() -> None:
    """Its requests run on, so only its free slots are unusable."""
    fleet = busy_fleet()
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    expected = SlotCounts(total=4, leased=2, draining=1, foreign=1, idle=0, unusable=1)
    assert counts(fleet) == expected


def test_a_tenant_that_sent_nothing_does_not_send_slowly() -> None:
    fleet = SmallFleet(1)
    assert not fleet.dispatcher.view.sends_slowly("t", fleet.now)
    fleet.dispatcher.state.uploads.is_suspect_tenant = lambda tenant, now: True  # type: ignore[method-assign]
    assert fleet.dispatcher.view.sends_slowly("t", fleet.now)
