"""Claims about extproc/admin/keepers/service.py, over loopback gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc
import pytest

from extproc.admin.keepers import service
from extproc.admin.keepers.service import NoKeeperError
from extproc.core.placement.machine import KeptState
from extproc.pb.coxswain.v1 import keeper_pb2 as pb
from extproc.pb.coxswain.v1.keeper_pb2_grpc import KeepersStub
from tests.fakes.picker import FakePicker, running_picker, until

QWEN = pb.KeptModel(name="qwen", slots=2, memory_mb=10, address="10.0.0.5:5800", aliases=["chat"])
CODER = pb.KeptModel(name="coder", slots=1, memory_mb=20, address="10.0.0.5:5801")
HELLO = pb.KeeperHello(machine="gpu-1", keeper_id="k1", memory_mb=25, models=[QWEN, CODER])


class Keeper:
    """A keeper driven by hand."""

    def __init__(self, picker: FakePicker) -> None:
        self.call = KeepersStub(picker.channel).Attach()

    async def hello(self, hello: pb.KeeperHello = HELLO) -> None:
        await self.call.write(pb.KeeperMessage(hello=hello))

    async def status(self, name: str, state: pb.KeeperStatus.State, **more: float) -> None:
        model = pb.KeeperStatus.Model(name=name, state=state, **more)  # type: ignore[arg-type]
        await self.call.write(pb.KeeperMessage(status=pb.KeeperStatus(models=[model])))

    async def command(self, is_it: Callable[[pb.KeeperCommand], object]) -> pb.KeeperCommand:
        """The next command like that; signs of life are passed over."""
        async with asyncio.timeout(60):
            while True:
                command = await self.call.read()
                assert isinstance(command, pb.KeeperCommand)
                if is_it(command):
                    return command

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        async with asyncio.timeout(60):
            with suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass  # the status comes after the messages
            return await self.call.code(), await self.call.details()


async def test_a_machine_and_the_states_of_its_models() -> None:
    async with running_picker() as picker:
        keeper = Keeper(picker)
        await keeper.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        machine = picker.keepers.machines["gpu-1"]
        assert list(machine.models) == ["qwen", "coder"] and not machine.has_reported
        assert machine.models["qwen"].aliases == ("chat",)
        await keeper.status("qwen", pb.KeeperStatus.STATE_LOADED, load_s=3.5, state_age_s=1.0)
        await until(lambda: machine.has_reported)
        assert machine.statuses["qwen"].state is KeptState.LOADED
        assert machine.statuses["qwen"].load_s == 3.5
        assert machine.statuses["coder"].load_s is None
        assert machine.used_mb == 10
        keeper.call.cancel()
        await until(lambda: not machine.is_connected)
        assert picker.keepers.machines["gpu-1"] is machine, "it is expected back"


async def test_a_machine_that_stays_away_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FORGET_S", 0.05)
    async with running_picker() as picker:
        keeper = Keeper(picker)
        await keeper.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        keeper.call.cancel()
        await until(lambda: not picker.keepers.machines)


SECOND = pb.KeeperHello(machine="gpu-1", keeper_id="k2", memory_mb=9, models=[CODER])


async def test_a_second_keeper_of_a_machine_is_refused_and_reported() -> None:
    """Both would assign the same memory. When the first leaves, another may come."""
    async with running_picker() as picker:
        first, second = Keeper(picker), Keeper(picker)
        await first.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        await second.hello(SECOND)
        code, text = await second.ended()
        assert code is grpc.StatusCode.ALREADY_EXISTS and "another keeper of gpu-1" in text
        machine = picker.keepers.machines["gpu-1"]
        assert machine.is_connected and machine.memory_mb == 25
        (problem,) = picker.keepers.problems()
        assert "a second keeper calls itself gpu-1, at 127.0.0.1" in problem
        first.call.cancel()
        await until(lambda: not picker.keepers.machines["gpu-1"].is_connected)
        assert picker.keepers.problems() == ()
        third = Keeper(picker)
        await third.hello(SECOND)
        await until(lambda: picker.keepers.machines["gpu-1"].memory_mb == 9)
        third.call.cancel()


async def test_a_keeper_that_comes_back_replaces_its_own_stream() -> None:
    """Its connection was cut, and the picker has not noticed."""
    async with running_picker() as picker:
        first, again = Keeper(picker), Keeper(picker)
        await first.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        before = picker.keepers.machines["gpu-1"]
        await again.hello()
        assert (await first.ended())[0] is grpc.StatusCode.UNAVAILABLE
        machine = picker.keepers.machines["gpu-1"]
        assert machine is not before and machine.is_connected
        again.call.cancel()


async def test_another_keeper_replaces_one_that_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine was lost, and runs again."""
    monkeypatch.setattr(service, "QUIET_S", -1.0)
    async with running_picker() as picker:
        first, second = Keeper(picker), Keeper(picker)
        await first.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        await second.hello(SECOND)
        await until(lambda: picker.keepers.machines["gpu-1"].memory_mb == 9)
        assert picker.keepers.problems() == ()
        second.call.cancel()


async def test_what_should_be_loaded_is_sent_once() -> None:
    async with running_picker() as picker:
        picker.keepers.want("gpu-1", ["qwen"])  # nobody is there
        keeper = Keeper(picker)
        await keeper.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        picker.keepers.want("gpu-1", ["qwen"])
        picker.keepers.want("gpu-1", ["qwen"])
        command = await keeper.command(lambda c: c.HasField("wanted"))
        assert list(command.wanted.models) == ["qwen"] and not command.wanted.retried
        picker.keepers.want("gpu-1", ["qwen"], retried=["qwen"])
        command = await keeper.command(lambda c: c.HasField("wanted"))
        assert list(command.wanted.retried) == ["qwen"]
        picker.keepers.want("gpu-1", [])
        command = await keeper.command(lambda c: c.HasField("wanted"))
        assert not command.wanted.models
        keeper.call.cancel()


async def test_a_log_is_passed_on_and_ends_with_its_keeper() -> None:
    async with running_picker() as picker:
        keeper = Keeper(picker)
        await keeper.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        log = picker.keepers.read_log("gpu-1", "qwen", 5, is_followed=True)
        reading = asyncio.ensure_future(anext(log))
        request = (await keeper.command(lambda c: c.logs)).logs[0]
        assert (request.model, request.lines, request.is_followed) == ("qwen", 5, True)
        lines = pb.LogLines(id=request.id, lines=["one", "two"])
        await keeper.call.write(pb.KeeperMessage(log=lines))
        assert list((await reading).lines) == ["one", "two"]
        await log.aclose()
        ended = await keeper.command(lambda c: c.ended_logs)
        assert list(ended.ended_logs) == [request.id]
        await keeper.call.write(pb.KeeperMessage(log=lines))  # too late is no error
        again = picker.keepers.read_log("gpu-1", "qwen", 5, is_followed=True)
        reading = asyncio.ensure_future(anext(again))
        await keeper.command(lambda c: c.logs)
        keeper.call.cancel()
        with pytest.raises(StopAsyncIteration):
            await reading
        with pytest.raises(NoKeeperError, match="not connected"):
            await anext(picker.keepers.read_log("gpu-1", "qwen", 5, is_followed=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "a b"}, "hello.machine"),
        ({"machine": ""}, "hello.machine"),
        ({"keeper_id": ""}, "keeper_id"),
        ({"memory_mb": 2**40}, "memory_mb"),
        ({"models": []}, "hello.models"),
        ({"models": [QWEN, QWEN]}, "one name"),
        ({"models": [pb.KeptModel(name="x", address="10.0.0.5:1")]}, "slots"),
        ({"models": [pb.KeptModel(name="x", slots=1, address="gpu:1")]}, "address"),
        ({"models": [pb.KeptModel(name="\n", slots=1, address="10.0.0.5:1")]}, "name"),
        (
            {"models": [pb.KeptModel(name="x", slots=1, address="1.2.3.4:1", ttl_s=-1)]},
            "ttl_s",
        ),
        (
            {
                "models": [
                    pb.KeptModel(name="x", slots=1, address="1.2.3.4:1", exclusive_with=["y"])
                ]
            },
            "exclusive_with",
        ),
    ],
)
async def test_an_invalid_hello_is_rejected(change: dict[str, object], words: str) -> None:
    hello = {"machine": "gpu-1", "keeper_id": "k", "memory_mb": 1, "models": [QWEN], **change}
    async with running_picker() as picker:
        keeper = Keeper(picker)
        await keeper.hello(pb.KeeperHello(**hello))  # type: ignore[arg-type]
        code, text = await keeper.ended()
        assert code is grpc.StatusCode.INVALID_ARGUMENT and words in text
        assert not picker.keepers.machines


async def test_messages_out_of_order_are_rejected() -> None:
    async with running_picker() as picker:
        early = Keeper(picker)
        await early.status("qwen", pb.KeeperStatus.STATE_LOADED)
        assert "must be hello" in (await early.ended())[1]
        twice = Keeper(picker)
        await twice.hello()
        await twice.hello()
        assert "only the first" in (await twice.ended())[1]
        unknown = Keeper(picker)
        await unknown.hello()
        await unknown.status("llama", pb.KeeperStatus.STATE_LOADED)
        assert "unknown model" in (await unknown.ended())[1]


async def test_a_picker_that_stops_sends_its_keepers_away() -> None:
    async with running_picker() as picker:
        keeper = Keeper(picker)
        await keeper.hello()
        await until(lambda: "gpu-1" in picker.keepers.machines)
        picker.keepers.close()
        code, _ = await keeper.ended()
        assert code is grpc.StatusCode.UNAVAILABLE
        late = Keeper(picker)
        assert (await late.ended())[0] is grpc.StatusCode.UNAVAILABLE
