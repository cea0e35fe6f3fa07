"""Claims about extproc/keeper/link.py: a real keeper before a real picker, over loopback gRPC;
and about the commands that show its models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from extproc.cli.root import root
from extproc.core.placement import load_policy
from extproc.keeper.link import KeeperLink, LinkOptions
from extproc.keeper.replacer import Replacer
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, running_picker
from tests.keeper.test_machine import Kit
from tests.keeper.waits import until


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coroutine[Any, Any, Result]]:
    """Runs a command in a thread: the picker lives in the test's event loop."""
    monkeypatch.delenv("COXSWAIN_TOKEN", raising=False)

    async def invoke(picker: FakePicker, *arguments: str) -> Result:
        words = (*arguments, "--picker", f"127.0.0.1:{picker.port}")
        return await asyncio.to_thread(lambda: CliRunner().invoke(root, words))

    return invoke


@asynccontextmanager
async def linked(
    kit: Kit, picker: FakePicker, replacer: Replacer | None = None
) -> AsyncIterator[KeeperLink]:
    link = KeeperLink(
        kit.machine,
        LinkOptions(picker="the picker", version="1.2.3"),
        lambda: grpc.aio.insecure_channel(
            f"127.0.0.1:{picker.port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ),
        replacer,
    )
    kit.on_change = link.changed
    task = asyncio.create_task(link.run())
    try:
        await until(lambda: kit.machine.name in picker.keepers.machines)
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    made.add("qwen", 60, aliases=["chat"])
    made.add("coder", 60, "--exit-after", "0")
    yield made
    await made.machine.stop(0.0)


def states(picker: FakePicker) -> dict[str, str]:
    statuses = picker.keepers.machines["gpu-1"].statuses
    return {name: status.state.value for name, status in statuses.items()}


async def test_the_picker_loads_and_unloads(
    kit: Kit, run: Callable[..., Coroutine[Any, Any, Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_policy, "FIRST_PAUSE_S", 0.01)
    async with running_picker() as picker, linked(kit, picker):
        await until(lambda: states(picker) == {"qwen": "unloaded", "coder": "unloaded"})
        picker.keepers.want("gpu-1", ["qwen", "coder"])
        await until(lambda: states(picker) == {"qwen": "loaded", "coder": "waiting"})
        shown = await run(picker, "models")
        assert shown.exit_code == 0 and "gpu-1: 60 of 100 MiB used" in shown.output
        assert "loaded" in shown.output and "waiting" in shown.output
        picker.keepers.want("gpu-1", ["coder"])
        await until(lambda: states(picker) == {"qwen": "unloaded", "coder": "failed"})
        listed = json.loads((await run(picker, "models", "-o", "json")).output)
        coder = listed["models"][1]
        assert coder["exits"] == 5 and "exit status 3" in coder["problem"]
        assert listed["models"][0]["aliases"] == ["chat"]
        picker.keepers.want("gpu-1", ["coder"], retried=["coder"])
        await until(lambda: picker.keepers.machines["gpu-1"].statuses["coder"].exits > 5)


async def test_logs_are_read_and_followed(
    kit: Kit, run: Callable[..., Coroutine[Any, Any, Result]]
) -> None:
    async with running_picker() as picker:
        async with linked(kit, picker):
            picker.keepers.want("gpu-1", ["qwen"])
            await until(lambda: states(picker)["qwen"] == "loaded")
            for name in ("qwen", "gpu-1/qwen", "gpu-1.qwen", "chat"):
                shown = await run(picker, "logs", name, "-n", "1")
                assert shown.exit_code == 0 and shown.output.startswith("listening"), shown.output
            assert (await run(picker, "logs", "nobody")).exit_code == 4
            call = picker.admin.WatchLog(pb.WatchLogRequest(model="qwen", lines=0, follow=True))
            reading = asyncio.ensure_future(call.read())
            log = kit.machine.servers["qwen"].log
            while not reading.done():
                log.add("a new line")
                await asyncio.sleep(0.05)
            first = await reading
            assert isinstance(first, pb.WatchLogResponse)
            assert set(first.lines) == {"a new line"}
            many = [str(number) for number in range(1000)]
            for line in many:
                log.add(line)
            seen: list[str] = []
            async with asyncio.timeout(60):
                while "999" not in seen:
                    part = await call.read()
                    assert isinstance(part, pb.WatchLogResponse)
                    seen += part.lines
            assert [line for line in seen if line != "a new line"] == many
        async with asyncio.timeout(60):
            with suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    pass
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "gone" in await call.details()


async def test_a_keeper_comes_back_to_its_picker(kit: Kit) -> None:
    """What is loaded stays so."""
    async with running_picker() as picker:
        async with linked(kit, picker):
            picker.keepers.want("gpu-1", ["qwen"])
            await until(lambda: states(picker)["qwen"] == "loaded")
            pid = kit.machine.servers["qwen"].pid
        await until(lambda: not picker.keepers.machines["gpu-1"].is_connected)
        async with linked(kit, picker):
            await until(lambda: picker.keepers.machines["gpu-1"].has_reported)
            assert states(picker)["qwen"] == "loaded"
            assert kit.machine.servers["qwen"].pid == pid


async def test_a_refused_keeper_has_nothing_loaded(kit: Kit) -> None:
    """The memory of its machine is another keeper's to assign."""
    second = Kit()
    second.add("qwen", 60)
    second.machine.want(["qwen"])  # as with `preload`
    await second.until_loaded("qwen")
    async with running_picker() as picker, linked(kit, picker):
        await until(lambda: has_reported(picker))
        async with linked(second, picker):
            await second.until_loaded()
            assert picker.keepers.problems()
            assert list(picker.keepers.machines["gpu-1"].models) == ["qwen", "coder"]
    await second.machine.stop(0.0)


def has_reported(picker: FakePicker) -> bool:
    machine = picker.keepers.machines.get("gpu-1")
    return machine is not None and machine.has_reported


def is_pinned(picker: FakePicker) -> bool:
    is_loaded = states(picker)["qwen"] == "loaded"
    return is_loaded and picker.placement.placer.pinned("gpu-1") == {"qwen"}


async def test_a_pin_outlives_the_picker(kit: Kit) -> None:
    """The next picker gets it from the keeper."""
    ports: list[int] = []
    link = KeeperLink(
        kit.machine,
        LinkOptions(picker="the picker", version="1.2.3"),
        lambda: grpc.aio.insecure_channel(
            f"127.0.0.1:{ports[-1]}", options=[("grpc.use_local_subchannel_pool", 1)]
        ),
    )
    kit.on_change = link.changed
    task: asyncio.Task[None] | None = None
    try:
        for number in range(2):
            async with running_picker(places_models=True) as picker:
                ports.append(picker.port)
                task = task or asyncio.create_task(link.run())
                await until(partial(has_reported, picker))
                if number == 0:
                    await picker.admin.LoadModel(pb.LoadModelRequest(model="qwen", pin=True))
                await until(partial(is_pinned, picker))
                await until(lambda: link._pinned == ("qwen",))
                picker.keepers.close()
    finally:
        assert task is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
