"""Claims about extproc/core/learning/in_flight.py."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest

from extproc.core.address import Address
from extproc.core.learning.in_flight import InFlight
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.request import UNKNOWN_PROMPT_TOKENS, Request
from extproc.core.slots.lease import Lease
from tests.fakes.steered_fleet import SteeredFleet

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)


@pytest.mark.parametrize("how", ["queue-full", "evicted", "queue-timeout"])
def test_a_rejection_for_lack_of_slots_misses_the_slo(how: str) -> None:
    silver = Objective(name="silver", queue_s=60.0)
    fleet = SteeredFleet(GOLD, silver, queue_max_requests=1)
    fleet.add(1)
    fleet.pick()
    if how == "queue-full":
        fleet.queue()
        assert fleet.rejection(objective="silver") == how
    else:
        fleet.queue(objective="silver", timeout_s=5.0)
        if how == "evicted":
            fleet.queue(objective="gold")
        else:
            fleet.now += 5.0
            fleet.dispatcher.advance(fleet.now)
    assert fleet.dispatcher.state.slo_attainment.totals() == {
        ("silver", "met"): 0,
        ("silver", "missed"): 1,
    }


HERE, THERE = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)
QUICK = Objective(name="quick", queue_s=1.0)


class Flights:
    """Requests that begin and end at 10.0.0.1:8000."""

    def __init__(self) -> None:
        self.fairness = FairQueueing()
        self.slo_attainment = SloAttainment()
        self.in_flight = InFlight(self.fairness, self.slo_attainment)
        self._ids = count(1)

    def begin(
        self,
        objective: Objective = NO_OBJECTIVE,
        *,
        waited_s: float = 0.0,
        adapter: str | None = None,
    ) -> Lease:
        lease = Lease(next(self._ids), HERE, 2, 100.0)
        request = Request(id="r", timeout_s=1.0, fairness_id="f", adapter=adapter)
        self.in_flight.begin(lease, request, objective, 100.0 - waited_s, charged_s=4.0)
        return lease

    @property
    def use_s(self) -> float:
        return self.fairness.flow(NO_OBJECTIVE, "f").tenant.virtual_s


def test_a_request_is_charged_by_what_it_used_at_last() -> None:
    """At once by what was expected, 4 slot-seconds; in the end two slots for five seconds."""
    flights = Flights()
    lease = flights.begin()
    assert flights.use_s == 4.0
    assert flights.in_flight.end(lease, 105.0) is not None
    assert flights.use_s == 10.0


def test_a_request_ends_once() -> None:
    flights = Flights()
    lease = flights.begin()
    assert len(flights.in_flight) == 1
    assert flights.in_flight.end(lease, 105.0) is not None
    assert flights.in_flight.end(lease, 109.0) is None
    assert (len(flights.in_flight), flights.use_s) == (0, 10.0)
    assert flights.in_flight.get(lease) is None


def test_its_headers_come_once() -> None:
    flights = Flights()
    lease = flights.begin()
    run = flights.in_flight.answered(lease, 101.0)
    assert run is not None and run.answered_at == 101.0
    assert flights.in_flight.answered(lease, 102.0) is None and run.answered_at == 101.0
    flights.in_flight.end(lease, 103.0)
    assert flights.in_flight.answered(lease, 104.0) is None


@pytest.mark.parametrize(("waited_s", "word"), [(1.0, "met"), (1.1, "missed")])
def test_an_slo_of_the_queue_alone_is_decided_by_the_pick(waited_s: float, word: str) -> None:
    flights = Flights()
    flights.begin(QUICK, waited_s=waited_s)
    totals = flights.slo_attainment.totals()
    assert totals["quick", word] == 1 and sum(totals.values()) == 1


def test_an_slo_is_recorded_once() -> None:
    """Whatever is known later."""
    flights = Flights()
    lease = flights.begin(QUICK, waited_s=0.5)
    run = flights.in_flight.get(lease)
    assert run is not None
    flights.in_flight.record_slo(run, lease, was_in_time=False, now=101.0)
    assert flights.slo_attainment.totals() == {("quick", "met"): 1, ("quick", "missed"): 0}


def test_a_rejection_without_an_slo_misses_none() -> None:
    flights = Flights()
    flights.in_flight.rejected(NO_OBJECTIVE, 0.0)
    assert flights.slo_attainment.totals() == {}
    flights.in_flight.rejected(QUICK, 0.0)
    assert flights.slo_attainment.totals()["quick", "missed"] == 1


def test_a_fallback_takes_its_adapter_along_and_leaves_the_scrapes_behind() -> None:
    """What scrapes of the picked server showed is of another request."""
    flights = Flights()
    lease = flights.begin(adapter="poet")
    run = flights.in_flight.get(lease)
    assert run is not None
    run.progress, run.ends_by = GenerationProgress(100.0, 101.0), 120.0
    lease.address = THERE
    flights.in_flight.moved(lease.id, HERE, THERE, 102.0)
    moved = flights.in_flight.get(lease)
    assert moved is not None and moved.progress is None and moved.ends_by == inf
    assert flights.in_flight.adapters.has_others(HERE, None) is False
    assert flights.in_flight.adapters.has_others(THERE, None) is True
    flights.in_flight.end(lease, 105.0)
    assert flights.in_flight.adapters.has_others(THERE, None) is False
    flights.in_flight.moved(lease.id, THERE, HERE, 106.0)
    assert flights.in_flight.adapters.has_others(HERE, None) is False, "it has ended"


def test_a_request_without_a_lease_is_found_and_forgotten() -> None:
    """The auditor reports it, and the repair counts again from the open leases."""
    flights = Flights()
    lost, kept = flights.begin(adapter="poet"), flights.begin(adapter="bard")
    assert flights.in_flight.faults({lost.id, kept.id}) == []
    (fault,) = flights.in_flight.faults({kept.id})
    assert f"lease {lost.id}" in fault
    flights.in_flight.rebuild([kept])
    assert flights.in_flight.get(lost) is None and flights.in_flight.get(kept) is not None
    assert not flights.in_flight.adapters.has_others(HERE, "bard")
    assert flights.fairness.flow(NO_OBJECTIVE, "f").running == 1


def test_what_is_in_a_cache_is_not_processed() -> None:
    flights = Flights()
    run = flights.in_flight.get(flights.begin())
    assert run is not None and run.uncached_tokens == UNKNOWN_PROMPT_TOKENS
    run.cached_tokens = UNKNOWN_PROMPT_TOKENS - 1.0
    assert run.uncached_tokens == 1.0
    run.cached_tokens = 1e6
    assert run.uncached_tokens == 0.0, "the estimate of its length was too short"
