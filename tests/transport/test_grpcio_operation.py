"""Claims about extproc/transport/grpcio_operation.py: every gRPC operation runs to its end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.servicer import PROCESS
from extproc.transport.grpcio_operation import Completion
from tests.fakes import envoy_messages as envoy
from tests.fakes.data_plane import Chosen
from tests.fakes.envoy_stream import eventually, rig

STREAMS = 500
ROUNDS = 3
LEAK_BYTES = 96
"""What malloc takes for the 80 bytes of one operation."""


class CoreError(Exception):
    pass


class Operation:
    """As grpc.aio's: waits for its core once, and frees in its last step what it gave to it."""

    def __init__(self) -> None:
        self.core = asyncio.get_running_loop().create_future()
        self.is_freed = False

    async def run(self) -> str:
        await self.core
        self.is_freed = True
        return "a message"


async def awaited(operation: Operation) -> asyncio.Task[str]:
    """A task that waits for the operation."""

    async def wait() -> str:
        return await Completion(operation.run())

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


async def test_the_result_of_an_operation() -> None:
    """It comes to who awaits it, be it late or there at once."""
    operation = Operation()
    task = await awaited(operation)
    operation.core.set_result(None)
    assert await task == "a message" and operation.is_freed

    async def at_once() -> str:
        return "no wait"

    assert await Completion(at_once()) == "no wait"


async def test_a_cancelled_task_goes_on_at_once_and_its_operation_ends_later() -> None:
    """The cancelling waits for nothing; what the core got is freed when the core is done."""
    operation = Operation()
    task = await awaited(operation)
    task.cancel("its client left")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not operation.core.cancelled() and not operation.is_freed
    operation.core.set_result(None)
    await eventually(lambda: operation.is_freed)


async def test_a_task_that_is_cancelled_as_the_core_is_done() -> None:
    """It is cancelled all the same, and everything is freed."""
    operation = Operation()
    task = await awaited(operation)
    operation.core.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: operation.is_freed)


async def test_a_task_that_goes_on_after_it_was_cancelled() -> None:
    """It can wait for the next operation as if nothing had been."""
    first, second = Operation(), Operation()

    async def wait() -> str:
        try:
            await Completion(first.run())
        except asyncio.CancelledError:
            return await Completion(second.run())
        return ""

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    first.core.set_result(None)
    second.core.set_result(None)
    assert await task == "a message"
    await eventually(lambda: first.is_freed and second.is_freed)


@pytest.mark.parametrize("leaves", [False, True])
async def test_an_operation_that_fails(leaves: bool) -> None:
    """Who awaits it hears of it, if anybody still does; it is freed in any case."""
    operation = Operation()
    task = await awaited(operation)
    if leaves:
        task.cancel()
    await asyncio.sleep(0)
    operation.core.set_exception(CoreError("the stream is gone"))
    with pytest.raises(asyncio.CancelledError if leaves else CoreError):
        await task
    await eventually(lambda: operation.is_freed)


async def test_an_operation_that_raises_before_it_waits() -> None:
    async def rejected() -> None:
        raise CoreError("the RPC is over")

    with pytest.raises(CoreError):
        await Completion(rejected())


# With gRPC itself


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _allocated() -> Callable[[], int] | None:
    """What tells how many bytes are allocated by malloc now; only glibc has it."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo2.restype = _Mallinfo2

    def read() -> int:
        gc.collect()
        counts = mallinfo2()
        return int(counts.uordblks + counts.hblkhd)

    return read


def _exchange(process: Callable[..., Any], way: str) -> None:
    """One stream as Envoy's, over gRPC's synchronous API, which frees what it takes."""
    is_over = threading.Event()

    def messages() -> Iterator[pb.ProcessingRequest]:
        yield envoy.request_headers()
        yield envoy.response_headers()
        if way == "reset":
            is_over.wait()

    call = process(messages())
    assert envoy.destination(next(call))
    next(call)
    call.cancel()
    is_over.set()


@pytest.mark.skipif("COVERAGE" in os.environ, reason="measuring coverage takes memory")
@pytest.mark.parametrize("way", ["reset", "half-closed and reset"])
async def test_a_stream_leaves_nothing_in_memory(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of exchanges that end as Envoy ends them do not make the process larger."""
    monkeypatch.setattr(Chosen, "transport", "grpcio")
    allocated = _allocated()
    if allocated is None:
        pytest.skip("only glibc tells what is allocated")
    async with rig(1) as picker:
        with grpc.insecure_channel(f"127.0.0.1:{picker.port}") as channel:
            process = channel.stream_stream(
                PROCESS,
                request_serializer=pb.ProcessingRequest.SerializeToString,
                response_deserializer=pb.ProcessingResponse.FromString,
            )

            async def exchanges(count: int) -> None:
                picker.records.clear()
                for number in range(count):
                    await asyncio.to_thread(_exchange, process, way)
                    await picker.finished(number + 1)

            await exchanges(STREAMS)
            grown = []
            for _ in range(ROUNDS):
                before = allocated()
                await exchanges(STREAMS)
                picker.records.clear()
                grown.append((allocated() - before) / STREAMS)
            assert min(grown) < LEAK_BYTES / 4
