"""Envoy's side of ext_proc: real client streams over loopback, to a server with a real core."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.pb import external_processor_pb2 as pb
from extproc.settings import QueueSettings
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.request.translate import ReadingOptions
from extproc.stream.running_stream import RunningStream
from extproc.stream.servicer import ExternalProcessor
from extproc.transport import CallHandler, Metadata, ServeCall, ServiceTable
from tests.fakes import envoy_messages as envoy
from tests.fakes.data_plane import serving
from tests.fakes.small_fleet import SmallFleet

LIMIT_S = 20.0
"""Of patience with this machine; no claim."""
KEPT_BYTES = 65_536
"""How much of a body is waited for: less than by default, so that short ones can be longer."""


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
            has_reports=lambda: self.has_reports,
        )
        self.has_reports = False
        self.table: ServiceTable = {}
        self.processor.add_to(self.table)
        self.port = 0
        self._channel: grpc.aio.Channel | None = None

    def by_hand(self) -> HandCall:
        """A stream that is moved by hand."""
        return HandCall().open(self.table[PROCESS])

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
            PROCESS, response_deserializer=pb.ProcessingResponse.FromString
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
        ExchangeOptions(
            queue=QueueSettings(timeout_s=queue_timeout_s),
            reading=ReadingOptions(kept_bytes=KEPT_BYTES),
        ),
    )
    async with serving(picker.table) as port:
        await picker.connect(port)
        try:
            yield picker
        finally:
            assert picker._channel is not None
            await picker._channel.close()


class HandCall:
    """The transport's side of a call, moved by hand: for claims about one turn of the loop."""

    metadata: Metadata = ()

    def __init__(self) -> None:
        self._handler: CallHandler | None = None
        self._kept: deque[bytes | None] = deque()
        self._is_paused = False
        self.is_over = False
        self.was_reset = False
        self.sent: list[pb.ProcessingResponse] = []
        self.status: tuple[int, str] | None = None

    def open(self, serve: ServeCall) -> Self:
        """Begin the call."""
        try:
            self._handler = serve(self)
        except Exception:  # noqa: BLE001  # as the transport does
            self._fail()
        return self

    # What the client does

    def say(self, message: pb.ProcessingRequest) -> None:
        self._kept.append(message.SerializeToString())
        self._deliver()

    def half_close(self) -> None:
        self._kept.append(None)
        self._deliver()

    def reset(self) -> None:
        if not self.is_over:
            self.was_reset = True
            self._lose()

    def lose(self) -> None:
        """Its connection is cut."""
        if not self.is_over:
            self._lose()

    def is_read(self) -> bool:
        """Whether all that was said has been read."""
        return not self._kept

    # What the service does

    def send(self, message: bytes) -> None:
        if not self.is_over:
            self.sent.append(pb.ProcessingResponse.FromString(message))

    def finish(self, status: int, text: str = "") -> None:
        if not self.is_over:
            self.is_over = True
            self.status = (status, text)
            self._handler = None

    def soon(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._deliver()

    # As the transport does

    def _deliver(self) -> None:
        while self._kept and not self._is_paused and not self.is_over and self._handler:
            message = self._kept.popleft()
            try:
                if message is None:
                    self._handler.half_closed()
                else:
                    self._handler.receive(message)
            except Exception:  # noqa: BLE001  # as the transport does
                self._fail()

    def _fail(self) -> None:
        logging.getLogger("tests").error("a call failed")
        if not self.is_over:
            self.status = (13, "internal error")
            self._lose()

    def _lose(self) -> None:
        self.is_over = True
        handler, self._handler = self._handler, None
        if handler is not None:
            try:
                handler.gone()
            except Exception:
                logging.getLogger("tests").exception("ending a call failed")


class NoOwner:
    """Of streams that a test makes without a service."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock

    def wait(self, stream: RunningStream) -> None:
        """The test enters it where it wants to."""

    def leave(self, stream: RunningStream) -> None:
        """The test ends it itself."""

    def await_report(self, stream: RunningStream) -> bool:
        """The test reports it itself."""
        return False

    def await_upload(self, stream: RunningStream) -> bool:
        """The test reports it itself."""
        return False
