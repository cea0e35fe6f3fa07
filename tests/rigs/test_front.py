"""The front records what passes, passes it on unchanged, and fails in each way when told to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from extproc.demo.port import free_ports
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator
from rigs.chaos.front import Fault, Front
from rigs.chaos.load import Clients
from rigs.chaos.planned_request import PlannedRequest
from rigs.chaos.records import Arrival
from tests.fakes.picker import until

SLOTS = 2


class Place:
    """A simulator behind a front, and clients who call the front."""

    def __init__(self, front: Front, issue_log: list[Arrival], port: int) -> None:
        self.front = front
        self.issue_log = issue_log
        self.port = port
        self.clients = Clients([port], no_answer_s=30)

    async def ask(self, *, is_streamed: bool = False, leaves_after_s: float | None = None) -> None:
        await self.clients.send(
            PlannedRequest(
                id=f"chaos-{len(self.issue_log)}",
                kind="test",
                tokens=4 if leaves_after_s is None else 10_000,
                is_streamed=is_streamed,
                patience_ms=1000,
                leaves_after_s=leaves_after_s,
            )
        )


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    simulator = Simulator(
        SimulatorOptions(slots=SLOTS, tokens_per_second=500, context_tokens=20_000)
    )
    backend = await simulator.start()
    (port,) = free_ports(1)
    issue_log: list[Arrival] = []
    front = Front(port, backend, issue_log, time.monotonic)
    await front.open()
    yield Place(front, issue_log, port)
    await front.close()
    await simulator.close()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_what_passes_is_recorded(place: Place, is_streamed: bool) -> None:
    await place.ask(is_streamed=is_streamed)
    (call,), (arrival,) = place.clients.calls, place.issue_log
    assert call.is_served
    assert (arrival.id, arrival.status, arrival.is_whole) == (call.id, 200, True)
    assert call.sent_at <= arrival.at <= arrival.ended_at <= call.ended_at


async def test_a_client_that_leaves_is_recorded_as_one(place: Place) -> None:
    await place.ask(is_streamed=True, leaves_after_s=0.2)
    await until(lambda: place.issue_log[0].closed_at > 0)
    assert place.clients.calls[0].has_left and not place.issue_log[0].is_whole
    assert place.front.open_requests == 0


@pytest.mark.parametrize(
    ("fault", "status", "is_whole"),
    [
        (Fault.ERROR_500, 500, True),
        (Fault.ERROR_503, 503, True),
        (Fault.RESET, 0, False),
        (Fault.GARBAGE, 0, False),
        (Fault.HALF_JSON, 200, False),
        (Fault.SLOW, 200, True),
    ],
)
async def test_it_fails_as_it_is_set_to(
    place: Place, fault: Fault, status: int, is_whole: bool
) -> None:
    place.front.fault = fault
    await place.ask()
    (call,) = place.clients.calls
    assert (call.status, call.is_whole) == (status, is_whole)
    assert place.issue_log[0].fault == fault.value
    place.front.fault = Fault.NONE
    await place.ask()
    assert place.clients.calls[1].is_served


async def test_an_endless_answer_ends_with_the_fault(place: Place) -> None:
    place.front.fault = Fault.ENDLESS
    asking = asyncio.create_task(place.ask(is_streamed=True))
    await until(lambda: bool(place.issue_log and place.issue_log[0].status))
    assert not asking.done()
    place.front.fault = Fault.NONE
    await asking
    assert not place.clients.calls[0].is_whole


async def test_hidden_it_answers_requests_and_health_checks_alone(place: Place) -> None:
    url = f"http://127.0.0.1:{place.port}"
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/slots")).status_code == 200
        place.front.hide(True)
        with pytest.raises(httpx.TransportError):
            await client.get(f"{url}/slots")
        checked = await client.get(f"{url}/health", headers={"user-agent": "Envoy/HC"})
        assert checked.status_code == 200
        await place.ask()
        assert place.clients.calls[0].is_served
        place.front.hide(False)
        assert (await client.get(f"{url}/slots")).status_code == 200


async def test_closed_it_rejects_and_cuts(place: Place) -> None:
    asking = asyncio.create_task(place.ask(is_streamed=True, leaves_after_s=30))
    await until(lambda: bool(place.issue_log and place.issue_log[0].status))
    await place.front.close()
    await asking
    assert place.clients.calls[0].error and not place.clients.calls[0].has_left
    await place.ask()
    assert "Connect" in place.clients.calls[1].error
    assert len(place.issue_log) == 1
