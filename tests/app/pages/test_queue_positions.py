"""Claims about extproc/app/pages/queue_positions.py: a position by the request's id."""

from __future__ import annotations

import time
from typing import cast

from extproc.app.pages.queue_positions import QueuePositions
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.core.scheduler.decision import Queued
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes.small_fleet import SmallFleet


def test_place_by_request_id() -> None:
    """Who waits is told its place, of how many, and how long it has waited; others nothing."""
    fleet, pending = SmallFleet(1), PendingStreams()
    fleet.now = time.monotonic()
    fleet.pick()
    for name in ("first", "second", "third"):
        request = Request(id=name, timeout_s=60.0, weight_slots=1)
        outcome = fleet.dispatcher.submit(request, fleet.now)
        assert isinstance(outcome, Queued)
        pending.enter(cast("RunningStream", None), outcome.ticket)
    places = QueuePositions(fleet.dispatcher, pending)
    second = places.find("second")
    assert second is not None
    assert (second.position, second.queued, second.expected_s) == (2, 3, None)
    assert second.order is None
    assert second.waited_s >= 0
    assert places.find("nobody") is None


def test_the_order_by_size_is_reported() -> None:
    """A client that counts down must know that others may still pass it."""
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED)
    fleet, pending = SmallFleet(1, order=order), PendingStreams()
    fleet.now = time.monotonic()
    fleet.pick()
    outcome = fleet.dispatcher.submit(Request(id="one", timeout_s=60.0), fleet.now)
    assert isinstance(outcome, Queued)
    pending.enter(cast("RunningStream", None), outcome.ticket)
    position = QueuePositions(fleet.dispatcher, pending).find("one")
    assert position is not None and position.order == "shortest_expected"
    assert position.as_json()["order"] == "shortest_expected"
