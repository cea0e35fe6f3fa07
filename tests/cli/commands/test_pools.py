"""What operators see of pools: `--pool` of each command, and the admin API behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from extproc.admin.external_scaler import ExternalScaler, Trigger
from extproc.app.options import dispatcher_options
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import ModelReading
from extproc.core.placement.machine import KeptMachine
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.settings import Settings
from extproc.stream.options import ExchangeOptions
from extproc.stream.request.pool_choice import PoolChoice
from tests.admin.keepers.test_service import HELLO, Keeper
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import FakePicker, running_picker, until

A, B = "10.0.0.1:8080", "10.0.0.2:8080"
SETTINGS = Settings.model_validate(
    {"pools": {"chat": {"default": True}, "batch": {"header": {"name": "x-team", "value": "b"}}}}
)
TEAM = {"x-team": "b"}


@asynccontextmanager
async def pools() -> AsyncIterator[FakePicker]:
    """A server in each pool; that of `batch` is busy, and a request waits for it."""
    options = ExchangeOptions(pools=PoolChoice(SETTINGS.pools))
    resolver = dispatcher_options(SETTINGS).resolver
    async with running_picker(resolver=resolver, exchange=options) as picker:
        picker.name(
            EndpointSpec(address=Address.parse(A), name="a", pool="chat"),
            EndpointSpec(address=Address.parse(B), name="b", pool="batch"),
        )
        for address in (A, B):
            picker.observe(address, models=(ModelReading(name="tiny"),))
        calls = [await picker.ask(name, headers=TEAM) for name in ("runs", "waits")]
        yield picker
        for call in calls:
            call.cancel()


async def test_each_command_shows_one_pool(run: Run) -> None:
    """Without `--pool` all of them, each with its name."""
    async with pools() as picker:

        async def listed(key: str, *command: str) -> list[dict[str, Any]]:
            found = parsed(await run(*command, "-o", "json", picker=picker))[key]
            assert isinstance(found, list)
            return found

        assert [one["pool"] for one in await listed("endpoints", "endpoints")] == ["chat", "batch"]
        only = ("--pool", "batch")
        assert [one["name"] for one in await listed("endpoints", "endpoints", *only)] == ["b"]
        assert [one["name"] for one in await listed("endpoints", "endpoints", "list", *only)] == [
            "b"
        ]
        assert [one["request_id"] for one in await listed("requests", "queue", *only)] == ["waits"]
        assert await listed("requests", "queue", "--pool", "chat") == []
        assert len(await listed("requests", "requests", *only)) == 2
        assert await listed("requests", "requests", "--pool", "chat") == []
        scale = await listed("models", "scale")
        assert [(one["pool"], one["queued_slots"]) for one in scale] == [("batch", 1), ("chat", 0)]
        assert [one["pool"] for one in await listed("models", "scale", *only)] == ["batch"]
        top = parsed(await run("top", "-o", "json", *only, picker=picker))
        assert [len(top[part]) for part in ("endpoints", "running", "queued")] == [1, 1, 1]
        found = parsed(await run("status", "-o", "json", picker=picker))["pools"]
        assert [(one["name"], one["running"], one["queued"]) for one in found] == [
            ("chat", 0, 0),
            ("batch", 1, 1),
        ]
        text = (await run("status", picker=picker)).stdout
        assert "chat (default): 1 of 1 slots idle, 0 running, 0 queued" in text
        for command in ("endpoints", "queue", "scale"):
            assert "POOL" in (await run(command, picker=picker)).stdout


async def test_machines_and_their_models_have_their_pool(run: Run) -> None:
    """A router that of its endpoint, a keeper's machine that of the settings."""
    settings = Settings.model_validate(
        {
            "pools": {"chat": {"default": True}, "batch": {"hosts": ["b.example"]}},
            "machines": {"gpu-1": {"in_pool": "batch"}},
        }
    )
    resolver = dispatcher_options(settings).resolver
    async with running_picker(resolver=resolver, places_models=True) as picker:
        keeper = Keeper(picker)
        await keeper.hello(HELLO)
        await until(lambda: "gpu-1" in picker.placement.machines)
        router = KeptMachine(name="r", memory_mb=0, models={}, is_connected=True, pool="chat")
        machines = picker.keepers.machines
        assert isinstance(machines, dict)
        machines["r"] = router
        answer = parsed(await run("models", "-o", "json", picker=picker))
        assert {one["name"]: one["pool"] for one in answer["machines"]} == {
            "gpu-1": "batch",
            "r": "chat",
        }
        assert {one["pool"] for one in answer["models"]} == {"batch"}
        text = (await run("models", picker=picker)).stdout
        assert "MACHINE  POOL" in text and "gpu-1 in the pool batch: " in text
        keeper.call.cancel()
    async with running_picker(places_models=True) as picker:
        keeper = Keeper(picker)
        await keeper.hello(HELLO)
        await until(lambda: "gpu-1" in picker.placement.machines)
        assert "POOL" not in (await run("models", picker=picker)).stdout
        keeper.call.cancel()


async def test_an_unknown_pool_is_refused_with_those_that_there_are(run: Run) -> None:
    async with pools() as picker:
        for command in ("endpoints", "queue", "requests", "scale", "top", "explain"):
            refused = await run(command, "--pool", "night", picker=picker)
            assert refused.exit_code != 0
            assert "there are chat, batch" in " ".join(refused.output.split())
    async with running_picker() as picker:
        refused = await run("scale", "--pool", "night", picker=picker)
        assert "no pools are configured" in " ".join(refused.output.split())
        assert "POOL" not in (await run("endpoints", picker=picker)).stdout


async def test_a_request_is_explained_in_its_pool(run: Run) -> None:
    """In the one that is named, or that its headers choose."""
    async with pools() as picker:

        async def explained(*options: str) -> dict[str, Any]:
            found = await run(
                "explain", *options, "-d", '{"messages":[]}', "-o", "json", picker=picker
            )
            return dict(parsed(found))

        assert (await explained())["chosen_name"] == "a"
        for way in (("--pool", "batch"), ("-H", "x-team: b")):
            queued = await explained(*way)
            assert queued["decision"] == "queued" and queued["resolved"]["pool"] == "batch"


async def test_records_are_kept_by_pool(run: Run) -> None:
    async with pools() as picker:
        ended = await picker.ask("ended")
        ended.cancel()
        await until(lambda: picker.records.total >= 1)
        for pool, count in (("chat", 1), ("batch", 0)):
            found = parsed(
                await run("requests", "--since", "1h", "--pool", pool, "-o", "json", picker=picker)
            )["records"]
            assert [one["pool"] for one in found] == [pool] * count


async def test_a_watch_of_one_pool_hears_of_its_endpoints_alone() -> None:
    """One that moves to another pool is gone."""
    async with pools() as picker:
        call = picker.admin.WatchEndpoints(pb.WatchEndpointsRequest(pool="batch"))
        first = await call.read()
        assert isinstance(first, pb.WatchEndpointsResponse)
        assert [one.address for one in first.changed] == [B] and first.is_snapshot_complete
        picker.name(
            EndpointSpec(address=Address.parse(A), name="other", pool="chat"),
            EndpointSpec(address=Address.parse(B), name="b", pool="chat"),
        )
        gone: list[str] = []
        while not gone:
            message = await call.read()
            assert isinstance(message, pb.WatchEndpointsResponse)
            gone += message.removed
        assert gone == [B]
        call.cancel()


async def test_an_endpoint_is_added_to_a_pool(run: Run) -> None:
    async with pools() as picker:
        await run("endpoints", "add", "10.0.0.3:8080", "--pool", "batch", picker=picker)
        (arrival,) = picker.added.arrivals.values()
        assert arrival.pool == "batch"
        request = pb.AddEndpointRequest(address="10.0.0.4:8080", pool="night")
        with pytest.raises(grpc.aio.AioRpcError):
            await picker.admin.AddEndpoint(request)


async def test_keda_asks_for_a_pool() -> None:
    """The default one if it names a model and no pool; all of them if it names neither."""
    async with pools() as picker:
        scaler = ExternalScaler(picker.dispatcher, lambda: 0.0)
        assert scaler.wanted(Trigger(model="tiny", pool="batch")) == 1
        assert scaler.wanted(Trigger(model="tiny")) >= 0
        both = scaler.wanted(Trigger())
        assert both == sum(scaler.wanted(Trigger(pool=one)) for one in ("chat", "batch"))
