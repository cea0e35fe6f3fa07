"""The ext_proc service over grpc.aio: one coroutine a stream, which only reads, asks and writes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from extproc.core.request import HOLD_MARGIN_S
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.envoy.operation import Completion
from extproc.stream.exchange import Exchange, ExchangeOptions, ProtocolError
from extproc.stream.running_stream import RunningStream, StreamOverError

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.core.exchange_record import ExchangeRecord
    from extproc.core.scheduler.dispatcher import Dispatcher
    from extproc.core.scheduler.exchange_registry import ExchangeRegistry
    from extproc.stream.pending_streams import PendingStreams

    Context = grpc.aio.ServicerContext[pb.ProcessingRequest, pb.ProcessingResponse]

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
NO_MESSAGE: Final = "not a valid message"
RESET_S: Final = 0.02
"""How long to wait for Envoy's reset of a stream that has ended."""

log = logging.getLogger("coxswain.stream")


class ExternalProcessor:
    """Serves Envoy's streams. The end of a stream releases what its exchange holds."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        waiting_room: PendingStreams,
        registry: ExchangeRegistry,
        options: ExchangeOptions,
        clock: Callable[[], float],
        tell: Callable[[ExchangeRecord], None],
        wants_traces: Callable[[], bool] = lambda: True,
    ) -> None:
        """`wants_traces` tells whether traces are logged or exported."""
        self._dispatcher = dispatcher
        self._waiting_room = waiting_room
        self._registry = registry
        self.options = options
        self._clock = clock
        self._tell = tell
        self._wants_traces = wants_traces
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve ext_proc on `server`."""
        handler = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=pb.ProcessingRequest.FromString,
            response_serializer=pb.ProcessingResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Process": handler}),)
        )

    def close(self) -> None:
        """Accept no new streams: Envoy's failure mode decides about their requests."""
        self._is_closed = True

    async def drain(self, timeout_s: float) -> bool:
        """Wait until no stream runs, at most `timeout_s`; returns whether that was reached."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d exchanges are still running after %g s", len(self._registry), timeout_s)
            return False
        return True

    async def _process(self, _: object, context: Context) -> None:
        if self._is_closed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the endpoint picker is shutting down")
        exchange = Exchange(
            self._dispatcher, self.options, self._clock(), self._trace_parent(context)
        )
        stream = RunningStream(exchange, context)
        try:
            self._enter(stream)
            # A client that leaves resets its stream, which cancels us wherever we wait. So a
            # request in the queue reads nothing: of ten thousand, each would hold a read for it.
            while True:
                message: object = await Completion(context.read())
                if isinstance(message, pb.ProcessingRequest):
                    self._feed(exchange, message)
                elif not exchange.half_close(self._clock()):
                    break
                message = None  # a queued request needs its headers no longer
                if exchange.ticket is not None:
                    self._waiting_room.enter(stream, exchange.ticket)
                    await stream.answer(
                        codec.extend_timeout(exchange.ticket.request.timeout_s + HOLD_MARGIN_S)
                    )
                    await stream.settled()
                await stream.answer()
        except (ProtocolError, DecodeError) as error:
            problem = str(error) if isinstance(error, ProtocolError) else NO_MESSAGE
            log.warning("exchange %s: %s; Envoy continues without the picker", exchange.id, problem)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        except StreamOverError:
            log.debug("exchange %s: the stream ended before the response was sent", exchange.id)
        except Exception:
            log.exception("exchange %s failed; Envoy continues without the picker", exchange.id)
            await context.abort(grpc.StatusCode.INTERNAL, "the endpoint picker failed")
        finally:
            self._leave(stream)
        # Envoy closes its half and resets the stream at once. That reset must come first: a
        # status that gRPC cannot deliver any more is one of the operations that it never frees.
        await asyncio.sleep(RESET_S)

    def _trace_parent(self, context: Context) -> str:
        """Envoy's own span; gRPC takes as long to make the metadata as we to read the headers."""
        if not self._wants_traces():
            return ""
        return codec.read_trace_parent(context.invocation_metadata() or ())

    def _enter(self, stream: RunningStream) -> None:
        self._registry.enter(stream)
        self._idle.clear()

    def _leave(self, stream: RunningStream) -> None:
        """Release what the exchange holds, before anything else that could fail."""
        ticket, record = stream.ticket, None
        try:
            record = stream.exchange.end(self._clock())
        except Exception:
            log.exception("ending exchange %s failed", stream.id)
        try:
            if ticket is not None:
                self._waiting_room.leave(ticket)
        finally:
            self._registry.leave(stream)
            if not len(self._registry):
                self._idle.set()
        if record is not None:
            self._tell(record)

    def _feed(self, exchange: Exchange, message: pb.ProcessingRequest) -> None:
        is_undecided = exchange.is_undecided
        began_at = self._clock()
        exchange.feed(message, began_at)
        if is_undecided:
            exchange.decided(self._clock() - began_at)
