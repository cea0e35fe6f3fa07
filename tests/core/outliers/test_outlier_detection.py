"""Claims about extproc/core/outliers/outlier_detection.py, through the dispatcher that updates
it."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import EndpointEjected, EndpointReadmitted, Event
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.fleet.membership import Fleet as Members
from extproc.core.observation import ScrapeStatus
from extproc.core.outliers.ejection import EjectionState
from extproc.core.outliers.failure_evidence import Failure, Fault, RequestKind
from extproc.core.outliers.outlier_detection import OutlierDetection, OutlierOptions
from extproc.core.request import Request
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.views.explain import explain
from tests.fakes.small_fleet import SmallFleet


class Fleet(SmallFleet):
    """Requests may have attributes; they may be sent to one endpoint alone."""

    def send(self, address: Address, **asked: Any) -> Lease:
        asked = {"id": "r", "timeout_s": 60.0, "allowed": frozenset({address}), **asked}
        outcome = self.dispatcher.submit(Request(**asked), self.now)
        assert isinstance(outcome, Picked), outcome
        return outcome.lease

    def fail(self, lease: Lease, fault: Fault = Fault.SERVER_ERROR) -> None:
        if fault is Fault.SERVER_ERROR:
            self.dispatcher.responded(lease, self.now, is_stream=False, is_error=True)
        self.dispatcher.failed(lease, fault, self.now)
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    def fail_at(self, address: Address, times: int, **asked: Any) -> None:
        for _ in range(times):
            self.now += 0.01
            self.fail(self.send(address, **asked))

    def is_out(self, address: Address) -> bool:
        return self.endpoint(address).is_ejected

    def issues(self, address: Address) -> list[str]:
        return [issue.code for issue in self.endpoint(address).issues]


@pytest.mark.parametrize("fault", list(Fault))
def test_three_failures_in_a_row_eject(fault: Fault) -> None:
    fleet = Fleet(4, 4)
    bad, good = fleet.addresses
    for _ in range(2):
        fleet.now += 0.01
        fleet.fail(fleet.send(bad), fault)
    assert not fleet.is_out(bad)
    fleet.now += 0.01
    fleet.fail(fleet.send(bad), fault)
    assert fleet.is_out(bad)
    assert fleet.issues(bad) == ["ejected"]
    assert {fleet.pick().address for _ in range(4)} == {good}
    assert fleet.dispatcher.state.outliers.totals == {bad: {fault: 1}}


def test_a_success_in_between_prevents_ejection() -> None:
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    for _ in range(5):
        fleet.fail_at(bad, 2)
        fleet.now += 0.01
        fleet.finish(fleet.send(bad))
    assert not fleet.is_out(bad)


def test_failures_of_one_request_count_once() -> None:
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    lease = fleet.send(bad)
    for _ in range(5):
        fleet.dispatcher.failed(lease, Fault.RESET, fleet.now)
    assert not fleet.is_out(bad)


def test_a_queued_request_gets_no_slot_of_an_ejected_endpoint() -> None:
    """Each failure frees a slot: the queue must not use it."""
    fleet = Fleet(1, 1)
    bad, good = fleet.addresses
    fleet.send(good)
    failing = fleet.send(bad)
    tickets = [fleet.queue() for _ in range(10)]
    failed = 0
    while failing.address == bad and failed < 10:
        fleet.now += 0.01
        failed += 1
        before = set(fleet.listener.settlements)
        fleet.fail(failing)
        new = set(fleet.listener.settlements) - before
        if not new:
            break
        settlement = fleet.listener.settlements[new.pop()]
        assert isinstance(settlement, Picked)
        failing = settlement.lease
    assert failed == 3
    assert sum(ticket.is_waiting for ticket in tickets) == 8


def ejected(*slots: int) -> tuple[Fleet, Address]:
    fleet = Fleet(*slots)
    bad = fleet.addresses[0]
    fleet.fail_at(bad, 3)
    assert fleet.is_out(bad)
    return fleet, bad


def test_it_is_readmitted_by_one_trial_request_at_a_time() -> None:
    fleet, bad = ejected(4, 4)
    fleet.pass_time(1.9)
    assert fleet.is_out(bad)
    fleet.pass_time(0.1)
    trial = fleet.send(bad)
    outcome = fleet.dispatcher.submit(
        Request(id="r", timeout_s=60.0, allowed=frozenset({bad})), fleet.now
    )
    assert isinstance(outcome, Queued), "one trial at a time"
    fleet.finish(trial)
    assert fleet.handed(outcome.ticket).address == bad
    assert fleet.issues(bad) == []
    assert [fleet.send(bad).address for _ in range(3)] == [bad] * 3


def test_an_ejection_and_its_end_are_announced_once() -> None:
    """Trials in between, failed or not, announce nothing."""
    fleet = Fleet(4, 4)
    bad = fleet.addresses[0]
    events: list[Event] = []
    fleet.dispatcher.on_events(lambda: events.extend(fleet.dispatcher.take_events()))
    fleet.fail_at(bad, 3)
    fleet.now += 2.0
    fleet.dispatcher.advance(fleet.now)
    fleet.fail(fleet.send(bad))
    fleet.now += 4.0
    fleet.dispatcher.advance(fleet.now)
    fleet.abandon(fleet.send(bad))
    fleet.finish(fleet.send(bad))
    announced = [one for one in events if isinstance(one, EndpointEjected | EndpointReadmitted)]
    assert [type(one) for one in announced] == [EndpointEjected, EndpointReadmitted]
    assert [one.address for one in announced] == [bad, bad]


def test_a_queued_request_is_the_trial_as_soon_as_one_is_due() -> None:
    fleet, bad = ejected(4, 1)
    fleet.pick()
    ticket = fleet.queue()
    fleet.pass_time(1.9)
    assert ticket.is_waiting
    fleet.pass_time(0.2)
    assert fleet.handed(ticket).address == bad


def test_a_failed_trial_ejects_for_longer() -> None:
    fleet, bad = ejected(4, 4)
    fleet.pass_time(2.0)
    fleet.fail(fleet.send(bad))
    assert fleet.is_out(bad)
    fleet.pass_time(3.9)
    assert fleet.is_out(bad)
    fleet.pass_time(0.1)
    assert not fleet.is_out(bad)


@pytest.mark.parametrize("end", ["client left", "4xx"])
def test_a_trial_without_a_result_is_repeated(end: str) -> None:
    fleet, bad = ejected(4, 4)
    fleet.pass_time(2.0)
    trial = fleet.send(bad)
    if end == "4xx":
        fleet.dispatcher.responded(trial, fleet.now, is_stream=False, is_error=True)
        fleet.dispatcher.release(trial, LeaseEnd.SERVED, fleet.now)
    else:
        fleet.abandon(trial)
    assert not fleet.is_out(bad)
    assert fleet.issues(bad) == ["ejected"]
    fleet.send(bad)
    assert fleet.is_out(bad)


def test_a_long_trial_does_not_keep_the_other_slots_out() -> None:
    fleet, bad = ejected(4, 4)
    fleet.pass_time(2.0)
    trial = fleet.send(bad)
    fleet.pass_time(2.0)
    assert not fleet.is_out(bad)
    assert fleet.issues(bad) == []
    fleet.fail(trial)
    assert fleet.is_out(bad), "it failed after all, on probation"


def test_earlier_requests_do_not_count() -> None:
    """The failures of the other slots arrive after the ejection, or after the readmission."""
    fleet = Fleet(8, 8)
    bad, _ = fleet.addresses
    leases = [fleet.send(bad) for _ in range(8)]
    for lease in leases[:5]:
        fleet.fail(lease)
    assert fleet.dispatcher.state.outliers.totals == {bad: {Fault.SERVER_ERROR: 1}}
    fleet.pass_time(2.0)
    fleet.finish(fleet.send(bad))
    for lease in leases[5:]:
        fleet.fail(lease)
    assert not fleet.is_out(bad)


def test_one_kind_of_request_causes_no_ejection() -> None:
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    for _ in range(20):
        fleet.now += 0.1
        fleet.finish(fleet.send(bad, traits="/chat"))
        fleet.fail_at(bad, 5, traits="/chat grammar")
    assert not fleet.is_out(bad)
    fleet.fail_at(bad, 3, traits="/chat")
    assert fleet.is_out(bad)


@pytest.mark.parametrize("is_uploading", [False, True])
def test_a_kind_that_begins_to_fail_causes_no_ejection(is_uploading: bool) -> None:
    """While another kind's request runs there, none of which has ended since. One whose body may
    not have arrived proves nothing."""
    fleet = Fleet(20, 4)
    bad, _ = fleet.addresses
    for traits in ("/chat", "/chat grammar"):
        fleet.finish(fleet.send(bad, traits=traits))
    fleet.fail_at(bad, 1, traits="/chat grammar")
    answer = fleet.send(bad, traits="/chat", is_uploading=is_uploading)
    fleet.now += 0.5
    fleet.fail_at(bad, 4, traits="/chat grammar")
    assert not fleet.is_out(bad)
    fleet.fail_at(bad, 1, traits="/chat grammar")
    assert fleet.is_out(bad) is is_uploading
    fleet.finish(answer)


RATE = 7.0
ANSWER_S = 0.3
MIXED = ("/chat", "/completions", "/chat tools", "/embeddings")


@pytest.mark.parametrize("traits", [MIXED[:1], MIXED[:2], MIXED])
@pytest.mark.parametrize("rare", [(), ("/chat grammar",)], ids=["steady", "with a rare kind"])
def test_a_server_that_fails_while_another_is_well_costs_three_requests(
    traits: tuple[str, ...], rare: tuple[str, ...]
) -> None:
    """Whatever kinds come, one after another, and although others worked there before: that another
    server answers them shows whose fault it is."""
    fleet = Fleet(4, 4)
    bad, good = fleet.addresses
    for kind in (*traits, *rare):
        fleet.finish(fleet.send(bad, traits=kind))
    running: list[tuple[float, Lease]] = []
    failed = 0
    for number in range(70):
        fleet.now += 1 / RATE
        while running and running[0][0] <= fleet.now:
            fleet.finish(running.pop(0)[1])
        if fleet.is_out(bad):
            break
        address = (bad, good)[number % 2]
        lease = fleet.send(
            address, traits=traits[number // 2 % len(traits)], fingerprint=number + 1
        )
        if address == bad:
            failed += 1
            fleet.fail(lease)
        else:
            running.append((fleet.now + ANSWER_S, lease))
    assert fleet.is_out(bad) and failed == 3


def test_a_kind_that_fails_everywhere_ejects_none() -> None:
    """Although another kind is answered everywhere: a poison request must not cost a fleet."""
    fleet = Fleet(4, 4)
    for _ in range(20):
        for address in fleet.addresses:
            fleet.finish(fleet.send(address, traits="/chat"))
            fleet.fail_at(address, 1, traits="/chat grammar")
    assert not any(fleet.is_out(address) for address in fleet.addresses)


def test_after_readmission_a_failing_kind_is_to_blame() -> None:
    """It was ejected because there was no other evidence; since its trial there is."""
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    fleet.fail_at(bad, 3, traits="/chat grammar")
    assert fleet.is_out(bad)
    fleet.pass_time(2.0)
    fleet.finish(fleet.send(bad, traits="/chat"))
    fleet.fail_at(bad, 30, traits="/chat grammar")
    assert not fleet.is_out(bad)


def test_the_only_endpoint_is_never_ejected() -> None:
    fleet = Fleet(4)
    fleet.fail_at(fleet.addresses[0], 50)
    assert not fleet.is_out(fleet.addresses[0])
    assert fleet.issues(fleet.addresses[0]) == []


def test_while_all_fail_alike_none_is_ejected() -> None:
    fleet = Fleet(4, 4, 4, 4)
    for _ in range(20):
        for address in fleet.addresses:
            fleet.fail_at(address, 1)
    assert not any(map(fleet.is_out, fleet.addresses))


def test_at_most_half_are_ejected() -> None:
    fleet = Fleet(4, 4, 4, 4)
    good = fleet.addresses[-1]
    for _ in range(20):
        fleet.finish(fleet.send(good))
        for address in fleet.addresses[:-1]:
            if not fleet.is_out(address):
                fleet.fail_at(address, 1)
    assert sum(map(fleet.is_out, fleet.addresses)) == 2


@pytest.mark.parametrize("loss", ["down", "drained", "removed", "unreachable"])
def test_without_another_endpoint_it_is_readmitted(loss: str) -> None:
    fleet, bad = ejected(4, 4)
    good = fleet.addresses[1]
    if loss == "down":
        fleet.dispatcher.connect_failed(good, fleet.now)
    elif loss == "drained":
        fleet.dispatcher.set_intent(good, Intent.DRAINING, fleet.now)
    elif loss == "removed":
        fleet.name(bad)
    else:
        fleet.scrape(good, status=ScrapeStatus.UNREACHABLE, busy=None)
    assert not fleet.is_out(bad)
    assert fleet.pick().address == bad


def test_a_new_process_gets_a_trial_at_once() -> None:
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    fleet.scrape(bad, instance="one")
    fleet.fail_at(bad, 3)
    fleet.now += 0.1
    fleet.scrape(bad, instance="two")
    assert not fleet.is_out(bad)
    fleet.fail(fleet.send(bad))
    assert fleet.is_out(bad)


def test_an_endpoint_that_returns_to_the_fleet_has_no_history() -> None:
    fleet, bad = ejected(4, 4)
    fleet.name(fleet.addresses[1])
    fleet.name(*fleet.addresses)
    fleet.scrape(bad, slots=4)
    assert not fleet.is_out(bad)
    assert fleet.dispatcher.state.outliers.totals == {}


def test_503_counts_once_each_time_it_seemed_healthy() -> None:
    """Envoy uses another endpoint, so it is down until the next scrape, which finds it ready."""
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    for _ in range(2):
        for _ in range(5):
            fleet.now += 0.01
            fleet.dispatcher.connect_failed(bad, fleet.now)
        fleet.scrape(bad)
    assert not fleet.is_out(bad)
    fleet.dispatcher.connect_failed(bad, fleet.now)
    fleet.scrape(bad)
    assert fleet.is_out(bad)


def test_explain_shows_the_ejection() -> None:
    fleet, bad = ejected(4, 4)
    fleet.now += 0.5
    request = Request(id="r", timeout_s=60.0)
    told = {
        one.address: one.filtered
        for one in explain(fleet.dispatcher.view, request, fleet.now).candidates
    }
    assert told[bad] == ("it is ejected after 5xx failures; a trial request is due in 1.5 s",)
    fleet.pass_time(1.5)
    fleet.send(bad)
    told = {
        one.address: one.filtered
        for one in explain(fleet.dispatcher.view, request, fleet.now).candidates
    }
    assert told[bad] == ("it is ejected after 5xx failures, and its trial request has not ended",)


def test_an_answer_from_before_the_readmission_does_not_shorten_the_probation() -> None:
    fleet = Fleet(4, 4)
    bad, _ = fleet.addresses
    old = fleet.send(bad)
    fleet.fail_at(bad, 3)
    fleet.pass_time(2.0)
    fleet.finish(fleet.send(bad))
    ejection = fleet.dispatcher.state.outliers.ejection(bad)
    assert ejection is not None
    before = ejection.threshold
    fleet.dispatcher.responded(old, fleet.now, is_stream=True)
    fleet.dispatcher.release(old, LeaseEnd.SERVED, fleet.now)
    assert ejection.threshold == before < 3
    for _ in range(9):
        fleet.now += 0.01
        lease = fleet.send(bad)
        fleet.dispatcher.responded(lease, fleet.now, is_stream=True)
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert ejection.threshold == 3


def test_a_trial_with_a_request_that_fails_everywhere_proves_nothing() -> None:
    """The next one is due at once, and the time to it is not doubled."""
    fleet, bad = ejected(4, 4, 4)
    fleet.fail_at(fleet.addresses[1], 1, fingerprint=7)
    fleet.pass_time(2.0)
    fleet.fail(fleet.send(bad, fingerprint=7))
    assert not fleet.is_out(bad) and fleet.issues(bad) == ["ejected"]
    fleet.fail(fleet.send(bad, fingerprint=8))
    assert fleet.is_out(bad)


def test_endpoints_that_are_down_are_not_counted_among_those_that_serve() -> None:
    """Half of three is one; with the one that is down it would be two."""
    fleet, bad = ejected(4, 4, 4, 4)
    _, worse, _, down = fleet.addresses
    fleet.scrape(down, status=ScrapeStatus.UNREACHABLE, busy=None)
    fleet.fail_at(worse, 3)
    assert fleet.is_out(bad) and not fleet.is_out(worse)
    fleet.scrape(down, busy=0, slots=4)
    fleet.fail_at(worse, 1)
    assert fleet.is_out(worse)


def test_zero_failures_disable_it() -> None:
    fleet = Fleet(4, 4)
    lease, request = fleet.send(fleet.addresses[0]), Request(id="r", timeout_s=60.0)
    announced: list[Address] = []
    detection = OutlierDetection(
        fleet.dispatcher.fleet,
        OutlierOptions(failures=0),
        lambda address, issue: announced.append(address),
    )
    for _ in range(10):
        assert not detection.failed(lease, request, Fault.RESET, fleet.now)
        assert not detection.connect_failed(fleet.endpoint(lease.address), fleet.now)
    assert announced == [] and detection.totals == {}


def test_an_endpoint_outside_the_fleet_is_not_ejected() -> None:
    announced: list[Address] = []
    gone = Address("10.9.9.9", 1)
    detection = OutlierDetection(
        Members(), OutlierOptions(), lambda address, issue: announced.append(address)
    )
    for number in range(5):
        failure = Failure(RequestKind("/chat", None), Fault.RESET, 0, float(number), 0.1)
        assert not detection._record_failure(gone, failure, None, float(number))
    assert announced == [] and detection.ejection(gone) is None


def test_the_end_of_an_ejection_is_not_announced_for_one_that_is_gone() -> None:
    fleet, bad = ejected(4, 4)
    state = fleet.dispatcher.state
    fleet.dispatcher.take_events()
    state.fleet.set_members("test", [EndpointSpec(address=fleet.addresses[1])])
    state.fleet.drop(bad)
    fleet.pass_time(2.0)
    trial = state.outliers.ejection(bad)
    assert trial is not None and trial.state is EjectionState.TRIAL_DUE
    assert not [
        one
        for one in fleet.dispatcher.take_events()
        if isinstance(one, EndpointEjected | EndpointReadmitted)
    ]
