"""Claims about sizes in the dispatcher (extproc/core/learning/request_sizes.py)."""

from __future__ import annotations

from random import Random

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import Event, StepFailed
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.prediction.answer_sizes import MAX_LEARNED_A_SECOND
from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.views.explain import explain
from tests.fakes.core_events import listen
from tests.fakes.small_fleet import RecordingListener

BY_SIZE = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED)
SHORT_S, LONG_S = 1.0, 16.0
SLOT = Address("10.0.0.1", 8000)


def request(path: str, weight_slots: int = 1) -> Request:
    return Request(id=path, timeout_s=999.0, traits=path, weight_slots=weight_slots)


class OneSlot:
    """One server of one slot, which takes long for `/long`."""

    def __init__(self, order: QueueOrder = BY_SIZE) -> None:
        self.now = 100.0
        self.listener = RecordingListener()
        self.dispatcher = listen(
            Dispatcher(
                Random(1), DispatcherOptions(order=order, health=HealthOptions(stale_after_s=1e9))
            ),
            self.listener,
        )
        self.dispatcher.set_members("test", [EndpointSpec(address=SLOT)], self.now)
        seen = Observation(
            address=SLOT,
            began_at=self.now,
            answered_at=self.now,
            status=ScrapeStatus.READY,
            slots=1,
            busy_slots=0,
        )
        self.dispatcher.observe(seen, self.now)

    def run(self, path: str, *, is_error: bool = False, end: LeaseEnd = LeaseEnd.SERVED) -> None:
        """A request that finds the slot free."""
        outcome = self.dispatcher.submit(request(path), self.now)
        assert isinstance(outcome, Picked)
        self.finish(outcome.lease, LONG_S if path == "/long" else SHORT_S, is_error, end)

    def finish(
        self,
        lease: Lease,
        seconds: float,
        is_error: bool = False,
        end: LeaseEnd = LeaseEnd.SERVED,
    ) -> None:
        self.now += seconds
        self.dispatcher.responded(lease, self.now, is_stream=False, is_error=is_error)
        self.dispatcher.release(lease, end, self.now)

    def teach(self, count: int = 120) -> None:
        for number in range(count):
            self.run("/long" if number % 4 == 0 else "/short")

    def queue(self, path: str, weight_slots: int = 1) -> Ticket:
        outcome = self.dispatcher.submit(request(path, weight_slots), self.now)
        assert isinstance(outcome, Queued)
        return outcome.ticket

    def occupy(self) -> Lease:
        outcome = self.dispatcher.submit(request("/short"), self.now)
        assert isinstance(outcome, Picked)
        return outcome.lease

    def settled(self, ticket: Ticket) -> bool:
        return ticket.id in self.listener.settlements


def test_without_the_setting_nothing_is_learned() -> None:
    fleet = OneSlot(ARRIVAL_ORDER)
    fleet.teach()
    lease = fleet.occupy()
    long, short = fleet.queue("/long"), fleet.queue("/short")
    assert fleet.dispatcher.state.sizes is None
    assert fleet.dispatcher.view.size_errors() == {}
    assert (long.expected_slot_s, short.order_class) == (0.0, 0)
    assert "size" not in explain(fleet.dispatcher.view, request("/long"), fleet.now).resolved
    fleet.finish(lease, 1.0)
    assert fleet.settled(long) and not fleet.settled(short)


def test_a_short_request_passes_a_long_one() -> None:
    fleet = OneSlot()
    fleet.teach()
    lease = fleet.occupy()
    long, short = fleet.queue("/long"), fleet.queue("/short")
    assert long.expected_slot_s == pytest.approx(LONG_S, rel=0.5)
    assert short.expected_slot_s == pytest.approx(SHORT_S, rel=0.5)
    positions = [
        fleet.dispatcher.view.position_of(one, fleet.now).position for one in (long, short)
    ]
    assert positions == [2, 1]
    fleet.finish(lease, 1.0)
    assert fleet.settled(short) and not fleet.settled(long)


def test_at_first_the_order_is_that_of_arrival() -> None:
    fleet = OneSlot()
    lease = fleet.occupy()
    long, short = fleet.queue("/long"), fleet.queue("/short")
    fleet.finish(lease, 1.0)
    assert fleet.settled(long) and not fleet.settled(short)


def test_a_long_request_is_passed_no_longer_than_the_bound() -> None:
    """Short requests arrive faster than they are served, and aging alone would serve the long one
    with the tenth slot at the latest."""
    fleet = OneSlot(QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=4.0))
    fleet.teach()
    lease = fleet.occupy()
    long = fleet.queue("/long")
    passes = 0
    while not fleet.settled(long):
        ticket = fleet.queue("/short")
        fleet.queue("/short")
        fleet.finish(lease, SHORT_S)
        (lease,) = fleet.dispatcher.view.leases()
        passes += not fleet.settled(long)
        assert fleet.settled(long) or fleet.now - long.entered_at < 4.0
        assert ticket.entered_at > 0.0
    assert passes == 3


def test_slots_multiply_a_size() -> None:
    fleet = OneSlot()
    fleet.teach()
    fleet.occupy()
    one, three = fleet.queue("/short"), fleet.queue("/short", weight_slots=3)
    assert three.expected_slot_s == pytest.approx(3 * one.expected_slot_s)


@pytest.mark.parametrize(
    ("is_error", "end"), [(True, LeaseEnd.SERVED), (False, LeaseEnd.HANDED_OVER)]
)
def test_what_shows_no_length_is_not_learned(is_error: bool, end: LeaseEnd) -> None:
    fleet = OneSlot()
    fleet.run("/short", is_error=is_error, end=end)
    sizes = fleet.dispatcher.state.sizes
    assert sizes is not None and len(sizes.answers) == 0


def test_an_answer_that_its_client_left_shows_for_how_long_it_held_the_slot() -> None:
    fleet = OneSlot()
    fleet.run("/short", end=LeaseEnd.ABANDONED)
    sizes = fleet.dispatcher.state.sizes
    assert sizes is not None and len(sizes.answers) > 0


def test_explain_says_the_order_and_the_size() -> None:
    fleet = OneSlot()
    assert (
        explain(fleet.dispatcher.view, request("/long"), fleet.now).resolved["size"] == "not known"
    )
    fleet.teach()
    details = explain(fleet.dispatcher.view, request("/long"), fleet.now).resolved
    assert details["queue_order"] == "shortest expected first, within its flow"
    assert details["size"].startswith("expected to take ")


def test_the_error_is_known_before_anything_was_queued() -> None:
    """So an operator sees it without load. Two sizes on two paths: the estimates are close."""
    fleet = OneSlot()
    fleet.teach(80)
    errors = fleet.dispatcher.view.size_errors()
    assert errors.keys() == {("", "0.5"), ("", "0.9")}
    assert 1.0 <= errors["", "0.5"] < 1.6


def test_a_failing_estimate_costs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is queued by its arrival, and the failure is an event."""
    fleet = OneSlot()
    fleet.teach()
    fleet.occupy()
    sizes = fleet.dispatcher.state.sizes
    assert sizes is not None
    monkeypatch.setattr(sizes, "answers", None)  # so that the next estimate raises
    events: list[Event] = []
    fleet.dispatcher.on_events(lambda: events.extend(fleet.dispatcher.take_events()))
    ticket = fleet.queue("/long")
    assert ticket.is_waiting and ticket.order_class == 0
    assert [one.step for one in events if isinstance(one, StepFailed)] == [
        "estimating the size of a request"
    ]
    assert fleet.dispatcher.faults(fleet.now) == []


def test_of_many_ends_a_second_a_bounded_number_is_learned() -> None:
    fleet = OneSlot()
    sizes = fleet.dispatcher.state.sizes
    assert sizes is not None
    learned = []
    sizes.answers.learn = lambda features, tokens: learned.append(tokens)  # type: ignore[method-assign]
    for _ in range(3 * MAX_LEARNED_A_SECOND):
        fleet.finish(fleet.occupy(), 0.0)
    assert len(learned) == MAX_LEARNED_A_SECOND


def test_a_position_by_size_counts_only_queues_that_its_tenant_is_in() -> None:
    """Beside it, one of another tenant waits for any model."""
    fleet = OneSlot()
    fleet.teach()
    lease = fleet.occupy()
    fleet.queue("/long")
    other = Request(id="o", timeout_s=999.0, traits="/short", tenant="o", allowed=frozenset({SLOT}))
    outcome = fleet.dispatcher.submit(other, fleet.now)
    assert isinstance(outcome, Queued)
    position = fleet.dispatcher.view.position_of(outcome.ticket, fleet.now)
    assert position.position in (1, 2) and position.expected_s is not None
    fleet.finish(lease, 1.0)
