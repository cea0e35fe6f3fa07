"""Claims about forecasts: positions follow the order of service, and the expected time uses the
best knowledge."""

from __future__ import annotations

import pytest

from extproc.core.decision import Picked, Queued
from extproc.core.fleet.endpoint import Intent
from extproc.core.objective import Objective
from extproc.core.placement.model_load import ModelLoad
from extproc.core.queue.ticket import Ticket
from extproc.core.request import UNCONSTRAINED_REQUEST, Request, ResolvedRequest
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet


def running(fleet: SmallFleet) -> Lease:
    outcome = fleet.submit()
    assert isinstance(outcome, Picked)
    return outcome.lease


def waiting(fleet: SmallFleet) -> Ticket:
    outcome = fleet.submit()
    assert isinstance(outcome, Queued)
    return outcome.ticket


def test_positions_follow_the_order_of_service() -> None:
    fleet = SmallFleet(1)
    lease = running(fleet)
    tickets = [waiting(fleet) for _ in range(3)]
    positions = [fleet.dispatcher.view.position_of(ticket, fleet.now) for ticket in tickets]
    assert [(queue_position.position, queue_position.queued) for queue_position in positions] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    arrival = fleet.dispatcher.view.position_of_arrival(
        UNCONSTRAINED_REQUEST, Request(id="n", timeout_s=60.0), fleet.now
    )
    assert (arrival.position, arrival.queued) == (4, 4)
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert fleet.dispatcher.view.position_of(tickets[1], fleet.now)[:2] == (1, 2)


def test_without_latencies_the_drain_rate_is_used() -> None:
    fleet = SmallFleet(1)
    lease = running(fleet)
    tickets = [waiting(fleet) for _ in range(4)]
    assert fleet.dispatcher.view.position_of(tickets[-1], fleet.now).expected_s is None
    for ticket in tickets[:2]:
        fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, fleet.now)  # which teaches no speed
        fleet.now += 3.0
        fleet.scrape(fleet.addresses[0], busy=0, slots=1)
        settlement = fleet.listener.settlements[ticket.id]
        assert isinstance(settlement, Picked)
        lease = settlement.lease
    assert not fleet.dispatcher.state.latency.has_learned
    expected = [fleet.dispatcher.view.position_of(one, fleet.now).expected_s for one in tickets[2:]]
    assert expected == pytest.approx([3.0, 6.0])


def test_a_request_is_served_no_later_than_running_answers_can_end() -> None:
    fleet = SmallFleet(1, 1)
    first, second = running(fleet), running(fleet)
    ticket, behind = waiting(fleet), waiting(fleet)
    for lease, left_s in ((first, 9.0), (second, 4.0)):
        run = fleet.dispatcher.state.in_flight.get(lease)
        assert run is not None
        run.ends_by = fleet.now + left_s
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s == pytest.approx(4.0)
    assert fleet.dispatcher.view.position_of(behind, fleet.now).expected_s == pytest.approx(9.0)
    third = waiting(fleet)
    expected_s = fleet.dispatcher.view.position_of(third, fleet.now).expected_s
    assert expected_s is None, "nothing tells when a third slot becomes free"
    fleet.now += 6.0
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s == 0.0, "it is late"


def test_nobody_knows_how_long_a_request_waits_that_no_endpoint_may_serve() -> None:
    """Whatever was learned before: that says nothing of when an operator activates one."""
    fleet = SmallFleet(1)
    run = fleet.dispatcher.state.in_flight.get(running(fleet))
    assert run is not None
    run.ends_by = fleet.now + 9.0
    ticket = waiting(fleet)
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s is not None
    assert fleet.dispatcher.view.all_served_s(fleet.now) is not None
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    assert fleet.dispatcher.view.position_of(ticket, fleet.now) == (1, 1, None)
    assert fleet.dispatcher.view.all_served_s(fleet.now) is None
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.ACTIVE, fleet.now)
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s is not None


def test_the_flows_of_a_tenant_alternate() -> None:
    """However many requests of the other flow are queued, and that flow used more."""
    fleet = SteeredFleet()
    fleet.add(1)
    fleet.pick(tenant="t", fairness_id="crowd")
    for _ in range(5):
        fleet.queue(tenant="t", fairness_id="crowd")
    arrival = Request(id="r", timeout_s=60.0, tenant="t", fairness_id="other")
    for expected in ((1, 6), (3, 7)):
        found = fleet.dispatcher.view.position_of_arrival(ResolvedRequest(), arrival, fleet.now)
        assert (found.position, found.queued) == expected
        fleet.queue(tenant="t", fairness_id="other")


def test_an_objective_that_misses_its_slo_is_served_before_one_that_meets_it() -> None:
    """Of equal criticality: the position of an arrival says so."""
    met, missed = Objective(name="met", queue_s=1.0), Objective(name="missed", queue_s=1.0)
    fleet = SteeredFleet(met, missed)
    fleet.add(1)
    fleet.pick()
    for name in ("met", "missed"):
        for _ in range(3):
            fleet.queue(objective=name)
    fleet.dispatcher.state.slo_attainment.record("missed", was_met=False, now=fleet.now)
    request = Request(id="r", timeout_s=60.0)

    def position_of(objective: Objective) -> int:
        resolved = ResolvedRequest(objective=objective)
        return fleet.dispatcher.view.position_of_arrival(resolved, request, fleet.now).position

    assert (position_of(missed), position_of(met)) == (4, 7)


def test_a_model_that_is_loaded_until_then_is_waited_for() -> None:
    """Whatever is known about slots that it had before."""
    fleet = SteeredFleet()
    fleet.add(1, models=["m"])
    fleet.pick(model="m")
    ticket = fleet.queue(model="m")
    load = ModelLoad(model="m", where="gpu", ready_at=fleet.now + 30.0)
    fleet.dispatcher.set_loads({"m": load}, {}, fleet.now)
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s == 30.0
    assert fleet.dispatcher.view.position_of(ticket, fleet.now + 40.0).expected_s == 0.0
    fleet.dispatcher.set_loads({}, {}, fleet.now)
    assert fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s is None


def test_an_answer_that_ended_since_the_outlook_was_computed_frees_nothing_more() -> None:
    """The one who waits for the second end waits for one that nobody knows."""
    fleet = SmallFleet(2)
    leases = [running(fleet) for _ in range(2)]
    first, second = waiting(fleet), waiting(fleet)
    in_flight = fleet.dispatcher.state.in_flight
    for lease in leases:
        run = in_flight.get(lease)
        assert run is not None
        run.ends_by = fleet.now + 9.0
    assert fleet.dispatcher.view.position_of(second, fleet.now).expected_s == 9.0
    in_flight.end(leases[0], fleet.now)
    assert fleet.dispatcher.view.position_of(first, fleet.now).expected_s == 9.0
    assert fleet.dispatcher.view.position_of(second, fleet.now).expected_s is None


def test_outlooks_are_kept_for_a_bounded_number_of_rankings() -> None:
    fleet = SteeredFleet()
    address = fleet.add(1, models=[f"m{number}" for number in range(MAX_RANKINGS + 10)])
    fleet.pick()
    forecast = fleet.dispatcher._allocator.forecast
    for number in range(MAX_RANKINGS + 10):
        ticket = fleet.queue(model=f"m{number}", allowed=frozenset({address}))
        assert fleet.dispatcher.view.position_of(ticket, fleet.now).position >= 1
        assert len(forecast._outlooks) <= MAX_RANKINGS + 1
