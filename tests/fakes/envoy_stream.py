"""Envoy's side of ext_proc: real client streams over loopback, to a server with a real core."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.servicer import SERVICE, ExternalProcessor
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

LIMIT_S = 20.0
"""Of patience with this machine; no claim."""


async def eventually(is_true: Callable[[], object]) -> None:
    """Let the event loop run until something has come about."""
    async with asyncio.timeout(LIMIT_S):
        while not is_true():  # noqa: ASYNC110 - any claim may be waited for, so there is no event
            await asyncio.sleep(0.001)


class EnvoyStream:
    """One stream of one HTTP exchange."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self._call = call

    async def send(self, message: pb.ProcessingRequest | bytes) -> None:
        data = message if isinstance(message, bytes) else message.SerializeToString()
        await self._call.write(data)

    async def receive(self) -> pb.ProcessingResponse:
        """The next answer; raises `EOFError` when the picker has ended the stream."""
        async with asyncio.timeout(LIMIT_S):
            answer = await self._call.read()
        if not isinstance(answer, pb.ProcessingResponse):
            raise EOFError
        return answer

    async def ask(self, message: pb.ProcessingRequest) -> pb.ProcessingResponse:
        await self.send(message)
        return await self.receive()

    async def hold(self, **headers: str) -> pb.ProcessingResponse:
        """A request that must wait: returns the answer that asks for patience."""
        answer = await self.ask(envoy.request_headers(**headers))
        assert answer.WhichOneof("response") is None
        assert answer.HasField("override_message_timeout")
        return answer

    async def half_close(self) -> None:
        await self._call.done_writing()

    def reset(self) -> None:
        self._call.cancel()

    async def status(self) -> grpc.StatusCode:
        async with asyncio.timeout(LIMIT_S):
            return await self._call.code()


class Rig:
    """A picker that serves on loopback; `fleet` is its core, `records` what it told."""

    def __init__(self, fleet: SmallFleet, options: ExchangeOptions) -> None:
        self.fleet = fleet
        self.records: list[ExchangeRecord] = []
        self.registry = ExchangeRegistry()
        self.pending_streams = PendingStreams()
        fleet.listener.on_settled = self.pending_streams.settled
        self.processor = ExternalProcessor(
            fleet.dispatcher,
            self.pending_streams,
            self.registry,
            options,
            lambda: fleet.now,
            self.records.append,
        )
        self.port = 0
        self._channel: grpc.aio.Channel | None = None

    async def connect(self, port: int) -> None:
        self.port = port
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    @property
    def channel(self) -> grpc.aio.Channel:
        assert self._channel is not None
        return self._channel

    def stream(self) -> EnvoyStream:
        method: grpc.aio.StreamStreamMultiCallable[bytes, pb.ProcessingResponse]
        method = self.channel.stream_stream(
            f"/{SERVICE}/Process", response_deserializer=pb.ProcessingResponse.FromString
        )
        return EnvoyStream(method())

    async def running(self, **headers: str) -> EnvoyStream:
        """A stream whose request was sent to a server."""
        stream = self.stream()
        assert envoy.destination(await stream.ask(envoy.request_headers(**headers)))
        return stream

    async def waiting(self, **headers: str) -> EnvoyStream:
        """A stream whose request is in the queue."""
        stream = self.stream()
        await stream.hold(**headers)
        return stream

    async def finished(self, many: int = 1) -> None:
        """Wait until so many exchanges were told in all."""
        await eventually(lambda: len(self.records) >= many)

    @property
    def leased(self) -> int:
        return sum(self.fleet.account(a).leased_slots for a in self.fleet.addresses)

    @property
    def in_queue(self) -> int:
        return len(self.fleet.dispatcher.queue)

    def is_clean(self) -> bool:
        """Whether nothing is left of any stream."""
        return (
            self.leased == self.in_queue == len(self.registry) == 0
            and not self.pending_streams._waiting
        )


@asynccontextmanager
async def rig(
    *slots: int, queue_max_requests: int = 100, queue_timeout_s: float = 60.0, fallbacks: int = 2
) -> AsyncIterator[Rig]:
    """A running picker in front of endpoints with these slots."""
    picker = Rig(
        SmallFleet(*slots, queue_max_requests=queue_max_requests, fallbacks=fallbacks),
        ExchangeOptions(queue_timeout_s=queue_timeout_s),
    )
    server = grpc.aio.server()
    picker.processor.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await picker.connect(port)
    try:
        yield picker
    finally:
        assert picker._channel is not None
        await picker._channel.close()
        await server.stop(0)


class HandStream:
    """The server's side of a stream, moved by hand: for claims about one turn of the event loop."""

    def __init__(self) -> None:
        self._coming: deque[object] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self.sent: list[pb.ProcessingResponse] = []

    def say(self, message: pb.ProcessingRequest) -> None:
        self._bring(message)

    def half_close(self) -> None:
        self._bring(grpc.aio.EOF)

    def is_read(self) -> bool:
        """Whether all that was said has been read."""
        return not self._coming

    def _bring(self, message: object) -> None:
        self._coming.append(message)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # What the servicer sees of it

    async def read(self) -> object:
        if not self._coming:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._coming.popleft()

    async def write(self, response: pb.ProcessingResponse) -> None:
        self.sent.append(response)

    def invocation_metadata(self) -> None:
        return None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise grpc.aio.AbortError(code, details)
