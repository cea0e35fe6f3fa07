"""Claims about scraper/agent/fleet_watch.py, at a real admin port over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from extproc.admin.auth.guard import Guard
from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.runners.target import EndpointTarget
from extproc.security.tokens import Token
from scraper.agent.fleet_watch import FleetWatch, fleet_observation
from scraper.agent.picker_stream import LinkError
from tests.fakes.picker import FakePicker, running_picker, until

HERE = Address("10.0.0.5", 10001)
A = "10.0.0.1:8080"
TOKEN = "operators-token-of-this-test"


@asynccontextmanager
async def watching(
    picker: FakePicker, token: str = ""
) -> AsyncIterator[tuple[FleetWatch, list[Observation]]]:
    seen: list[Observation] = []
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    watch = FleetWatch(
        "region:9003",
        lambda: grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}"),
        seen.append,
        lambda: metadata,
    )
    watch.watch(EndpointTarget(address=HERE))
    try:
        yield watch, seen
    finally:
        await watch.aclose()


async def test_a_fleet_is_observed_as_one_endpoint() -> None:
    """Its slots, those that are busy, and again when it is asked for."""
    async with running_picker() as picker, watching(picker) as (watch, seen):
        await until(lambda: bool(seen))
        assert (seen[0].status, seen[0].slots) == (ScrapeStatus.LOADING, 0)
        picker.add_ready(A, slots=2)
        await until(lambda: seen[-1].status is ScrapeStatus.READY)
        assert (seen[-1].address, seen[-1].slots, seen[-1].busy_slots) == (HERE, 2, 0)
        call = await picker.ask("r1")
        await until(lambda: seen[-1].busy_slots == 1)
        watch.scrape_now(HERE)
        assert seen[-1].busy_slots == 1 and seen[-1].began_at > seen[-2].began_at
        call.cancel()


async def test_a_fleet_that_is_not_heard_has_failed() -> None:
    """With the token that its picker wants it is heard."""
    guard = Guard(Token(TOKEN))
    async with running_picker(interceptors=(guard,)) as picker:
        picker.add_ready(A)
        async with watching(picker) as (watch, seen):
            await until(lambda: bool(seen))
            assert seen[0].status is ScrapeStatus.FAILED
            assert [issue.code for issue in seen[0].issues] == ["fleet-unreachable"]
            count = len(seen)
            watch.scrape_now(HERE)
            assert len(seen) == count, "nothing is known"
        async with watching(picker, TOKEN) as (_, seen):
            await until(lambda: bool(seen))
            assert seen[0].status is ScrapeStatus.READY


async def test_it_goes_on_when_it_cannot_connect() -> None:
    """Certificates may be missing for a moment."""

    def connect() -> grpc.aio.Channel:
        raise LinkError("no certificate")

    seen: list[Observation] = []
    watch = FleetWatch("region:9003", connect, seen.append)
    watch.watch(EndpointTarget(address=HERE))
    await until(lambda: len(seen) == 2)
    await watch.aclose()
    assert {one.status for one in seen} == {ScrapeStatus.FAILED}


def test_models_with_slots_of_their_own() -> None:
    message = pb.WatchFleetResponse(slots=4, busy_slots=9, context_tokens=512)
    message.models.add(name="tiny", aliases=["t"], is_loaded=True, slots=2, busy_slots=7)
    message.models.add(name="large", is_loaded=True)
    seen = fleet_observation(message, HERE, 1.0)
    assert (seen.slots, seen.busy_slots, seen.context_tokens) == (4, 9, 512)
    tiny, large = seen.models
    assert (tiny.aliases, tiny.slots, tiny.busy_slots) == (("t",), 2, 7)
    assert (large.slots, large.busy_slots, large.is_loaded) == (None, None, True)


def test_requests_that_may_wait_in_the_fleet_are_slots() -> None:
    """Of the fleet and of each model, but not where there is no slot to wait for."""
    message = pb.WatchFleetResponse(slots=4, busy_slots=5)
    message.models.add(name="tiny", slots=2, busy_slots=1)
    message.models.add(name="gone", slots=0, busy_slots=0)
    message.models.add(name="common")
    seen = fleet_observation(message, HERE, 1.0, ahead=3)
    assert (seen.slots, seen.busy_slots) == (7, 5)
    assert [model.slots for model in seen.models] == [5, 0, None]
    empty = fleet_observation(pb.WatchFleetResponse(), HERE, 1.0, ahead=3)
    assert (empty.status, empty.slots) == (ScrapeStatus.LOADING, 0)
