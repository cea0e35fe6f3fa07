"""Claims about extproc/admin/calls/models.py, with a keeper driven by hand before a real picker."""

from __future__ import annotations

import grpc
import pytest

from extproc.core.address import Address
from extproc.core.placement.machine import KeptMachine, KeptModel
from extproc.pb import external_processor_pb2 as ext_proc
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1 import keeper_pb2 as kept
from tests.admin.keepers.test_service import HELLO, Keeper
from tests.fakes.picker import FakePicker, running_picker, until


async def attached(picker: FakePicker, hello: kept.KeeperHello = HELLO) -> Keeper:
    keeper = Keeper(picker)
    await keeper.hello(hello)
    await until(lambda: hello.machine in picker.keepers.machines)
    await keeper.status("qwen", kept.KeeperStatus.STATE_UNLOADED)
    await until(lambda: picker.keepers.machines[hello.machine].has_reported)
    return keeper


async def wanted(keeper: Keeper) -> list[str]:
    command = await keeper.command(lambda c: c.HasField("wanted"))
    return list(command.wanted.models)


async def test_operators_load_pin_and_unload() -> None:
    async with running_picker(places_models=True) as picker:
        keeper = await attached(picker)
        assert await wanted(keeper) == []
        await picker.admin.LoadModel(pb.LoadModelRequest(model="chat", pin=True))
        assert await wanted(keeper) == ["qwen"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.LoadModel(pb.LoadModelRequest(model="gpu-1/coder", pin=True))
        assert "does not fit" in (caught.value.details() or "")
        listed = await picker.admin.ListModels(pb.ListModelsRequest())
        one = next(model for model in listed.models if model.name == "qwen")
        assert one.is_wanted and one.is_pinned and "an operator loaded it" in one.last_change
        await picker.admin.UnpinModel(pb.UnpinModelRequest(model="qwen"))
        await picker.admin.LoadModel(pb.LoadModelRequest(model="coder"))
        # The end of a pin may be said before, in a command of its own.
        await keeper.command(lambda command: list(command.wanted.models) == ["coder"])
        await picker.admin.UnloadModel(pb.UnloadModelRequest(model="coder"))
        assert await wanted(keeper) == []
        keeper.call.cancel()


async def test_the_lists_and_explain_name_the_load() -> None:
    """For a queued request, in the same words."""
    async with running_picker(places_models=True) as picker:
        keeper = await attached(picker)
        assert await wanted(keeper) == []
        call = await picker.ask("r1", has_body=True)
        body = ext_proc.HttpBody(body=b'{"model": "chat"}', end_of_stream=True)
        await call.write(ext_proc.ProcessingRequest(request_body=body))
        assert await wanted(keeper) == ["qwen"]
        await keeper.status("qwen", kept.KeeperStatus.STATE_LOADING)
        words = "waits for qwen to be loaded at gpu-1, about "
        await until(lambda: picker.dispatcher.view.wait_note("chat", 0.0).startswith(words))
        listed = await picker.admin.ListRequests(pb.ListRequestsRequest())
        assert [one.note[: len(words)] for one in listed.requests] == [words]
        async for seen in picker.admin.WatchQueue(pb.WatchQueueRequest(id="r1")):
            assert seen.note.startswith(words)
            break
        told = await picker.admin.Explain(pb.ExplainRequest(body=b'{"model": "chat"}'))
        assert told.note.startswith(words)
        call.cancel()
        keeper.call.cancel()


async def test_a_keeper_that_is_away_cannot_load() -> None:
    async with running_picker(places_models=True) as picker:
        keeper = await attached(picker)
        assert await wanted(keeper) == []
        assert picker.dispatcher.resolver.models.is_known("chat")
        keeper.call.cancel()
        await until(lambda: not picker.keepers.machines["gpu-1"].is_connected)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.LoadModel(pb.LoadModelRequest(model="qwen"))
        assert "not connected" in (caught.value.details() or "")


async def test_a_name_on_several_machines_needs_its_machine() -> None:
    async with running_picker(places_models=True) as picker:
        first = await attached(picker)
        other = kept.KeeperHello()
        other.CopyFrom(HELLO)
        other.machine = "gpu-2"
        second = await attached(picker, other)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.LoadModel(pb.LoadModelRequest(model="qwen"))
        assert "write machine/model" in (caught.value.details() or "")
        await picker.admin.LoadModel(pb.LoadModelRequest(model="gpu-2/qwen"))
        assert picker.placement.placer.wanted("gpu-2") == ("qwen",)
        assert picker.placement.placer.wanted("gpu-1") == ()
        first.call.cancel()
        second.call.cancel()


async def test_a_router_is_listed_and_has_neither_logs_nor_commands() -> None:
    async with running_picker(places_models=True) as picker:
        router = KeptMachine(
            name="r",
            memory_mb=0,
            models={
                "qwen": KeptModel(name="qwen", address=Address.of("10.0.0.9", 8080), memory_mb=0)
            },
            is_router=True,
            max_models=1,
            has_reported=True,
        )
        picker.placement.changed(router)
        answer = await picker.admin.ListModels(pb.ListModelsRequest())
        (machine,) = answer.machines
        assert (machine.is_router, machine.max_models, machine.used_models) == (True, 1, 0)
        await picker.admin.LoadModel(pb.LoadModelRequest(model="r/qwen"))
        assert picker.placement.placer.wanted("r") == ("qwen",)
        for call, says in (
            (picker.admin.WatchLog(pb.WatchLogRequest(model="qwen")), "shows no logs"),
            (
                picker.admin.ReplaceModel(pb.ReplaceModelRequest(model="qwen", cmd=["x"])),
                "only a keeper can replace",
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(call))
            assert says in (caught.value.details() or "")
