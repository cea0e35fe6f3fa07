"""Whatever clients, operators and the line do to streams at once: nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from random import Random

import grpc
import pytest

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import Exchange
from extproc.stream.running_stream import RunningStream
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import EnvoyStream, Rig, eventually, rig
from tests.fakes.log import logged

STREAMS = 400
"""At once, on six slots: most of them wait."""


class Client:
    """One exchange as Envoy might tell it, with an end that nobody expects."""

    def __init__(self, random: Random, stream: EnvoyStream) -> None:
        self._random = random
        self._stream = stream

    async def live(self) -> None:
        """Ask, perhaps say more than was requested, and leave in some way."""
        try:
            await self._ask()
            for _ in range(self._random.randrange(4)):
                await self._random.choice((self._wait, self._say_more, self._listen))()
            await self._leave()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, EOFError, TimeoutError):
            pass  # the picker ended it, or nothing came
        finally:
            self._stream.reset()  # as Envoy does with whatever it is done with

    async def _ask(self) -> None:
        is_duplex = self._random.random() < 0.5
        head = envoy.request_headers(x_request_id=f"r{self._random.randrange(50)}")
        if is_duplex:
            envoy.with_body(head, is_duplex=True)
        await self._stream.send(head)
        if is_duplex:
            for _ in range(self._random.randrange(3)):
                await self._stream.send(envoy.body(b" " * 70_000, end_of_stream=False))
            await self._stream.send(envoy.body(b"{}"))

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * 0.01)

    async def _listen(self) -> None:
        async with asyncio.timeout(0.01):
            await self._stream.receive()

    async def _say_more(self) -> None:
        message: pb.ProcessingRequest | bytes = self._random.choice(
            (
                envoy.body(b"more", end_of_stream=False),
                envoy.body(),
                envoy.response_headers(served="10.0.0.1:8000"),
                envoy.response_headers(content_type="text/event-stream", attempts=-1),
                envoy.part("request_trailers"),
                envoy.part("response_trailers"),
                envoy.unknown_kind(),
                envoy.request_headers(),
                b"\xff\xff",
            )
        )
        await self._stream.send(message)

    async def _leave(self) -> None:
        if self._random.random() < 0.5:
            await self._stream.half_close()
            while True:
                await self._stream.receive()
        else:
            self._stream.reset()


async def operate(picker: Rig, random: Random) -> None:
    """Cancel whatever is there, and let the servers be looked at, until told to stop."""
    while True:
        found = list(picker.registry)
        for exchange in random.sample(found, min(3, len(found))):
            exchange.cancel(picker.fleet.now)
        picker.fleet.now += 0.01
        for address in picker.fleet.addresses:
            slots = picker.fleet.account(address).slots
            picker.fleet.scrape(address, busy=random.randrange(slots + 1))
        await asyncio.sleep(0.001)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what nothing refers to is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("seed", range(3))
async def test_a_storm(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each exchange is told once, each slot comes back, and nothing was an error of ours."""
    random = Random(seed)
    caplog.set_level(logging.ERROR)
    async with rig(2, 4, queue_max_requests=STREAMS // 2) as picker:
        operator = asyncio.ensure_future(operate(picker, random))
        async with asyncio.TaskGroup() as group:
            for _ in range(STREAMS):
                group.create_task(Client(random, picker.stream()).live())
        await eventually(lambda: not len(picker.registry))
        operator.cancel()
        await asyncio.wait([operator])
        assert operator.cancelled(), "no cancel failed"
        del operator  # its frame knows the last stream that it cancelled

        def is_clean() -> bool:
            picker.fleet.pass_time(20.0)
            return picker.is_clean()

        await eventually(is_clean)  # a stream that was reset may still be on its way here
        assert len({record.exchange_id for record in picker.records}) == len(picker.records)
        for address in picker.fleet.addresses:
            picker.fleet.scrape(address, busy=0)
            account = picker.fleet.account(address)
            assert account.leases == {} and account.free_slots == account.slots
        left = [each for each in gc.get_objects() if isinstance(each, (Exchange, RunningStream))]
        assert left == [], "each is freed at its end"
    assert [record.getMessage() for record in logged(caplog)] == []
