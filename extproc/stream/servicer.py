"""The ext_proc service: opens an exchange for each call, and ends it with the call."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extproc.core.constraints import NO_POOL
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.takeover import Place
from extproc.stream.envoy import codec
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from extproc.transport import Call, CallHandler, ServeCall, ServiceTable
from extproc.transport.status import UNAVAILABLE

REPORT_S: Final = 0.05
"""How long a response whose call is over waits for Envoy's report about its end, which is behind
it by less than a millisecond. Well below `draining_evidence.RELEASE_S`."""

RECONNECT_S: Final = 1.0
"""How long Envoy may take to report again after it lost the front to which it did."""

log = logging.getLogger("coxswain.stream")


class ExternalProcessor:
    """Serves Envoy's streams. The end of a stream releases what its exchange holds."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pending: PendingStreams,
        registry: ExchangeRegistry,
        options: ExchangeOptions,
        clock: Callable[[], float],
        record: Callable[[ExchangeRecord], None],
        wants_traces: Callable[[], bool] = lambda: True,
        has_reports: Callable[[], bool] = lambda: False,
    ) -> None:
        """`record` takes the record of each exchange that ended. `wants_traces` says whether traces
        are logged or exported, `has_reports` whether an Envoy reports the ends of exchanges."""
        self._dispatcher = dispatcher
        self._pending = pending
        self._registry = registry
        self.options = options
        self.clock = clock
        self._record = record
        self._wants_traces = wants_traces
        self._has_reports = has_reports
        self._is_closed = False
        self.idle = asyncio.Event()
        """Set while no stream runs."""
        self.idle.set()

    def add_to(self, table: ServiceTable) -> None:
        """Serve ext_proc."""
        table[codec.PROCESS] = self._open

    def close(self) -> None:
        """Accept no new streams: Envoy's failure mode decides about their requests."""
        self._is_closed = True

    def serve_pool(self, pool: str) -> ServeCall:
        """What serves ext_proc at the port of a pool: all requests there are for it."""
        return lambda call: self.begin(call, self.clock(), pool=pool)

    def _open(self, call: Call) -> CallHandler:
        return self.begin(call, self.clock())

    def begin(
        self, call: Call, began_at: float, exchange_id: str = "", pool: str = NO_POOL
    ) -> RunningStream:
        """Serve a call that was opened at `began_at`, as the exchange of that id if there is one:
        a front that holds it has given it one. `pool` is that of the port that it came to."""
        trace_parent = codec.read_trace_parent(call.metadata) if self._wants_traces() else ""
        exchange = Exchange(self._dispatcher, self.options, began_at, trace_parent, pool)
        if exchange_id:
            exchange.id = exchange_id
        stream = RunningStream(exchange, call, self)
        if self._is_closed:
            call.finish(UNAVAILABLE, "the endpoint picker is shutting down")
        else:
            self._registry.enter(stream)
            self.idle.clear()
        return stream

    def move(self, request_id: str, place: Place) -> bool:
        """Give this place to the queued request with this id, while no slots are assigned: it was
        queued there by a stream that has ended. Returns whether there is one."""
        stream = self._pending.stream_of(request_id)
        if stream is None or stream.ticket is None:
            return False
        before = stream.ticket
        settlement = stream.exchange.move(place, self.clock())
        self._pending.leave(before)
        if settlement is None:
            self.wait(stream)
        else:
            stream.settle(settlement)
        stream.keep_waiting()
        return True

    # What its streams call

    def wait(self, stream: RunningStream) -> None:
        """The stream's request is queued."""
        ticket = stream.exchange.ticket
        assert ticket is not None
        self._pending.enter(stream, ticket)

    def await_report(self, stream: RunningStream) -> bool:
        """See `StreamOwner`."""
        if not self._has_reports():
            return False
        asyncio.get_running_loop().call_later(REPORT_S, stream.reported)
        return True

    def await_upload(self, stream: RunningStream) -> bool:
        """See `StreamOwner`. Envoy may have to connect first: the reports came to the front that
        was lost."""
        interval_s = self.options.envoy.upload_report_interval_s
        if interval_s is None:
            return False
        asyncio.get_running_loop().call_later(RECONNECT_S + 2 * interval_s, stream.upload_silent)
        return True

    def leave(self, stream: RunningStream) -> None:
        """Release what the exchange holds, before anything else that could fail. Never raises."""
        ticket, record = stream.ticket, None
        try:
            record = stream.exchange.end(self.clock())
        except Exception:
            log.exception("ending exchange %s failed", stream.id)
        try:
            if ticket is not None:
                self._pending.leave(ticket)
        finally:
            self._registry.leave(stream)
            if not len(self._registry):
                self.idle.set()
        if record is not None:
            self._record(record)
