"""Claims about the forecasts that operators and clients see: they are the same on each screen, and
right. Simulated traffic goes through the real streams; each screen is asked through its own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from statistics import median
from typing import Any, NamedTuple, cast

import pytest
from rich.console import Console, RenderableType

from extproc.admin.calls.explain import ExplainCalls
from extproc.admin.calls.requests import RequestCalls
from extproc.admin.calls.status import StatusCalls
from extproc.admin.status_json import status_json
from extproc.app.pages.pages import queue_position
from extproc.cli.output import seconds
from extproc.cli.screens.request_table import table_of
from extproc.cli.screens.top_tables import Frame, request_lines
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.stream.dry_run import dry_run
from tests.fakes.admin_dependencies import admin_dependencies
from tests.fakes.simulated_traffic import Client, SimulatedTraffic

SERVERS = (("big", 4), ("big", 4), ("small", 4), ("small", 5))
CLIENTS = [
    Client(model, objective)
    for model, numbers in (("big", (4, 21, 3)), ("small", (5, 22, 3)))
    for objective, number in zip(("chat", "work", "batch"), numbers, strict=True)
    for _ in range(number)
]
"""Two models and three criticalities; as many clients as slots and 35 more, without `batch`."""
WARM_UP_S, PAUSE_S, MOMENTS = 60.0, 17.3, 12
MAX_ERROR = 0.3


class Place(NamedTuple):
    """What a screen says of one request."""

    position: int
    queued: int
    expected_s: float | None


class _Enough(Exception):  # noqa: N818  # it ends a watch
    pass


class FirstMessage:
    """The context of a streaming call, which ends with the first message."""

    message: pb.WatchQueueResponse

    async def write(self, message: pb.WatchQueueResponse) -> None:
        self.message = message
        raise _Enough


class Screens:
    """What each of them says about traffic."""

    def __init__(self, traffic: SimulatedTraffic) -> None:
        self._traffic = traffic
        dispatcher = traffic.dispatcher
        self._dependencies = admin_dependencies(
            dispatcher,
            traffic.clock,
            registry=traffic.registry,
            explain=lambda asked: dry_run(
                dispatcher, traffic.processor.options, asked, traffic.now
            ),
        )

    async def listed(self) -> pb.ListRequestsResponse:
        """`coxswain queue`, `coxswain requests` and `coxswain top`."""
        calls = RequestCalls(self._dependencies)
        request = pb.ListRequestsRequest(states=[pb.REQUEST_STATE_QUEUED])
        return await calls.ListRequests(request, _no_context())

    async def watched(self, id_: str) -> Place:
        """`coxswain queue watch`."""
        context = FirstMessage()
        with pytest.raises(_Enough):
            await RequestCalls(self._dependencies).WatchQueue(
                pb.WatchQueueRequest(id=id_), cast("Any", context)
            )
        return _place(context.message)

    def polled(self, id_: str) -> Place:
        """`GET /queue/{id}`."""
        traffic = self._traffic
        found = queue_position(traffic.dispatcher, traffic.pending_streams, id_, traffic.clock())
        assert found is not None
        said = found.as_json()
        assert said["expected_s"] == pytest.approx(found.expected_s, abs=0.05)
        return Place(found.position, found.queued, found.expected_s)

    async def explained(self, client: Client) -> Place:
        """`coxswain explain`."""
        request = pb.ExplainRequest(
            headers={
                "x-gateway-model-name": client.model,
                "x-gateway-inference-objective": client.objective,
            }
        )
        answer = await ExplainCalls(self._dependencies).Explain(request, _no_context())
        assert answer.decision == pb.ExplainResponse.DECISION_QUEUED
        return Place(answer.queue_position, 0, answer.expected_s)

    async def totals(self) -> tuple[float, float]:
        """The time until all are served: of `/status` and the dashboard, and of `coxswain top`."""
        tree = status_json(self._dependencies)
        status = await StatusCalls(self._dependencies).GetStatus(
            pb.GetStatusRequest(), _no_context()
        )
        return tree["queue"]["expected_s"], status.queue.expected_s


def _no_context() -> Any:
    """These calls use it only for errors."""
    return None


def _place(message: pb.WatchQueueResponse) -> Place:
    return Place(message.queue_position, message.queued, message.expected_s)


def lines_of(part: RenderableType) -> Iterator[str]:
    """What a terminal shows."""
    screen = Console(file=StringIO(), width=200)
    screen.print(part)
    return iter(cast("StringIO", screen.file).getvalue().splitlines())


def error_of(expected_s: float | None, really_s: float) -> float:
    assert expected_s is not None
    return abs(expected_s - really_s) / max(0.1, really_s)


async def test_each_screen_says_the_same_and_is_right() -> None:
    """With two models, three criticalities and 35 waiting, the median error is at most 30 %."""
    traffic = SimulatedTraffic(SERVERS, CLIENTS, seed=1)
    screens = Screens(traffic)
    expected: list[tuple[str, float, float | None]] = []
    arrivals: list[tuple[str, float, float | None]] = []
    totals: list[tuple[list[str], float, float]] = []
    await traffic.run(WARM_UP_S)
    for moment in range(MOMENTS):
        await traffic.run(PAUSE_S)
        now = traffic.now
        answer = await screens.listed()
        assert answer.total_queued == len(answer.requests) >= 35
        for request in answer.requests:
            listed = Place(request.queue_position, request.queued, request.expected_s)
            assert listed == await screens.watched(request.request_id)
            assert listed == screens.polled(request.request_id)
            expected.append((request.request_id, now, request.expected_s))
        assert {
            request.queue_position for request in answer.requests if request.model == "big"
        } == {1 + index for index in range(sum(one.model == "big" for one in answer.requests))}, (
            "each place once"
        )
        ids = [request.request_id for request in answer.requests]
        of_status, of_top = await screens.totals()
        assert of_status == pytest.approx(of_top, abs=0.001)
        totals.append((ids, now, of_status))
        client = CLIENTS[(5 * moment) % 25]
        explained = await screens.explained(client)
        arrival = traffic.ask(client, is_once=True)
        place = screens.polled(arrival)
        assert (explained.position, explained.expected_s) == (place.position, place.expected_s)
        arrivals.append((arrival, now, explained.expected_s))
    await traffic.run(600.0)
    for shown in (expected, arrivals):
        errors = [error_of(soon_s, traffic.started[id_] - now) for id_, now, soon_s in shown]
        assert median(errors) <= MAX_ERROR
    errors = [
        error_of(soon_s, max(traffic.started[id_] for id_ in ids) - now)
        for ids, now, soon_s in totals
    ]
    assert median(errors) <= MAX_ERROR


async def test_terminals_show_the_places() -> None:
    """In the table of `coxswain queue`, and in that of `coxswain top`."""
    traffic = SimulatedTraffic(SERVERS, CLIENTS, seed=2)
    await traffic.run(WARM_UP_S)
    answer = await Screens(traffic).listed()
    frame = Frame(address="", width=200)
    table, top = lines_of(table_of(answer)), lines_of(request_lines(answer.requests, frame))
    for lines, position in (
        (table, "{0.queue_position} of {0.queued}"),
        (top, "{0.queue_position}"),
    ):
        assert "EXPECTED" in next(lines)
        for request, line in zip(answer.requests, lines, strict=False):
            assert request.exchange_id in line
            assert f" {position.format(request)} " in line
            assert line.rstrip().endswith(seconds(request.expected_s))
