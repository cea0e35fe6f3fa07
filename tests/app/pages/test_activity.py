"""Claims about extproc/app/pages/activity.py: what `/activity` says is what is.

Simulated traffic goes through the real streams and the real core.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from extproc.admin.calls.requests import RequestCalls
from extproc.app.pages.activity import MAX_ENDED, Activity
from extproc.core.exchange_record import Outcome
from extproc.core.rejection import Reason
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.status.history import INTERVAL_S
from extproc.status.requests_json import MAX_LISTED
from tests.fakes.admin_dependencies import admin_dependencies
from tests.fakes.simulated_traffic import Client, SimulatedTraffic
from tests.telemetry.records import record

SERVERS = (("big", 4), ("small", 3))
CLIENTS = [Client("big", "chat"), Client("big", "work"), Client("small", "work")] * 6


class Screen:
    """Traffic, its activity, and the admin API beside it."""

    def __init__(self, seed: int = 1) -> None:
        self.traffic = SimulatedTraffic(SERVERS, CLIENTS, seed=seed)
        self.activity = Activity(
            self.traffic.dispatcher,
            self.traffic.registry,
            self.traffic.clock,
            generated_tokens=lambda: None,
            bypassed=lambda: 0,
        )
        self._calls = RequestCalls(
            admin_dependencies(
                self.traffic.dispatcher, self.traffic.clock, registry=self.traffic.registry
            )
        )

    async def run(self, seconds: float) -> None:
        """Let traffic pass; what ends is passed on."""
        await self.traffic.run(seconds)
        for each in self.traffic.records:
            self.activity.request_ended(each)
        self.traffic.records.clear()
        self.activity.advance()

    async def listed(self) -> list[pb.Request]:
        """What `coxswain requests` and `coxswain queue` show."""
        answer = await self._calls.ListRequests(pb.ListRequestsRequest(), cast("Any", None))
        return list(answer.requests)


async def test_requests_are_those_of_the_admin_api() -> None:
    """The same running and queued requests, with the same positions, times and reasons."""
    screen = Screen()
    for _ in range(5):
        await screen.run(13.7)
        shown = screen.activity.as_json()["requests"]
        listed = await screen.listed()
        running = [each for each in listed if not each.queue_position]
        queued = [each for each in listed if each.queue_position]
        assert len(running) == 7 and len(queued) == len(CLIENTS) - 7
        assert {each["id"]: each["endpoint"] for each in shown["running"]} == {
            each.exchange_id: each.endpoint for each in running
        }
        places = {each["id"]: each for each in shown["queued"]}
        assert places.keys() == {each.exchange_id for each in queued}
        for each in queued:
            place = places[each.exchange_id]
            assert (place["position"], place["queued"]) == (each.queue_position, each.queued)
            assert place["expected_s"] == pytest.approx(each.expected_s, abs=0.001)
            assert place["waited_s"] == pytest.approx(each.waited_s, abs=0.001)
            assert (place["reason"], place["model"]) == (each.wait_reason, each.model)


async def test_ended_requests_say_how_and_why() -> None:
    """Newest first, with the reason of a rejection; what takes no slot is not listed."""
    screen = Screen()
    activity, now = screen.activity, screen.traffic.now
    activity.request_ended(
        record(outcome=Outcome.REJECTED, reason=Reason.SHED, began_at=now - 4, duration_s=1.0)
    )
    activity.request_ended(record(outcome=Outcome.PASSED, began_at=now - 3, duration_s=0.5))
    activity.request_ended(
        record(outcome=Outcome.BROKEN, reason=Reason.CANCELLED, began_at=now - 3, duration_s=2.0)
    )
    first, second = activity.as_json()["requests"]["ended"]
    assert (first["outcome"], first["reason"], first["ended_age_s"]) == ("broken", "cancelled", 1.0)
    assert (second["outcome"], second["reason"], second["ended_age_s"]) == ("rejected", "shed", 3.0)


async def test_lists_are_bounded_and_show_no_clients_texts() -> None:
    """However many there were; no request id, path or header is in them."""
    screen = Screen()
    for index in range(MAX_ENDED + 10):
        screen.activity.request_ended(
            record(exchange_id=f"x{index}", request_id="secret", path="/secret")
        )
    tree = screen.activity.as_json()
    ended = tree["requests"]["ended"]
    assert len(ended) == MAX_LISTED and ended[0]["id"] == f"x{MAX_ENDED + 9}"
    assert "secret" not in str(tree)


async def test_one_endpoint_has_its_own() -> None:
    """By its name or address: its requests, events and what was learned; else there is nothing."""
    screen = Screen()
    await screen.run(120.0)
    address = next(iter(screen.traffic.dispatcher.fleet)).address
    tree = screen.activity.as_json(str(address))
    estimate, samples = screen.traffic.dispatcher.view.latency_at(address, screen.traffic.now)
    assert tree["learned"]["endpoint"] == str(address) and samples > 3
    assert tree["learned"]["slot_s"] == round(estimate.slot_s, 3)
    lists = tree["requests"]
    assert lists["queued"] == [] and len(lists["running"]) == 4 and len(lists["ended"]) > 3
    every = [*lists["running"], *lists["ended"], *tree["events"]]
    assert {each["endpoint"] for each in every} == {str(address)}
    unknown = screen.activity.as_json("nobody")
    assert unknown["requests"] == {"running": [], "queued": [], "ended": []}
    assert unknown["events"] == [] and "learned" not in unknown


async def test_history_is_kept_for_pages_that_are_opened_later() -> None:
    """Samples of what the ledger said then, and first tokens of what ended."""
    screen = Screen()
    for _ in range(4):
        await screen.run(INTERVAL_S)
    history = screen.activity.as_json()["history"]
    assert history["age_s"] == [3 * INTERVAL_S, 2 * INTERVAL_S, INTERVAL_S, 0.0]
    assert history["leased"] == [7] * 4 and history["total"] == [7] * 4
    assert history["queued"] == [len(CLIENTS) - 7] * 4
    assert all(value is not None for value in history["first_token_s"][1:])
    assert history["tokens_per_s"] == [None] * 4, "no server reports them"
