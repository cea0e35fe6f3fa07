"""Receives records and passes them to metrics and traces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.placement.load_record import LoadRecord
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.settings.logging_section import StatsdSettings
from extproc.telemetry.endpoint_counts import HELD_SLOT, model_of
from extproc.telemetry.environment import OtlpOptions
from extproc.telemetry.metrics import Metrics, TelemetrySources
from extproc.telemetry.prometheus import prometheus_text
from extproc.telemetry.spans import UNKNOWN_SERVER, Server
from extproc.telemetry.statsd import Statsd
from extproc.telemetry.trace_context import Sampler, parse_trace_parent

if TYPE_CHECKING:
    from extproc.telemetry.otlp import OtlpExport


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """`version` is ours; without `statsd.addr` no datagram is sent, without OTLP none exported."""

    version: str
    otlp: OtlpOptions = field(default_factory=OtlpOptions)
    statsd: StatsdSettings = field(default_factory=StatsdSettings)


class Telemetry:
    """Belongs to one event loop. `record` costs microseconds and never blocks."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sources: TelemetrySources,
        options: TelemetryOptions,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        self._options = options
        self._sources = sources
        self._dispatcher = dispatcher
        self._random = random or Random()
        self._sampler = Sampler(options.otlp.sampling, self._random)
        self._otlp: OtlpExport | None = None
        self.takes_spans = False
        """Whether spans are exported."""
        self._reporting: asyncio.Task[None] | None = None
        self._statsd: Statsd | None = None
        self.metrics = Metrics(
            dispatcher, sources, version=options.version, clock=clock, dropped=self._dropped
        )

    def start(self) -> None:
        """Start the exporters in the options, if any."""
        otlp = self._options.otlp
        if otlp.traces is not None or otlp.metrics is not None:
            from extproc.telemetry.otlp import OtlpExport  # noqa: PLC0415  # its libraries take 0.3 s to load

            self._otlp = OtlpExport(otlp, self._options.version, self._random)
            self.takes_spans = self._otlp.takes_spans
            if self._otlp.takes_readings:
                self._reporting = asyncio.create_task(self._report(), name="report metrics")
        if self._options.statsd.addr is not None:
            self._statsd = Statsd(self._options.statsd, self._gauges)
            self._statsd.start()

    async def aclose(self) -> None:
        """Send the remaining data, within seconds, and stop."""
        if self._statsd is not None:
            await self._statsd.aclose()
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait({self._reporting})
        if self._otlp is not None:
            self._otlp.send(self.metrics.read())
            await asyncio.to_thread(self._otlp.close)

    def record(self, record: ExchangeRecord) -> str:
        """Record an ended exchange. Returns its trace id, or "" without a trace."""
        self.metrics.record(record)
        parent = parse_trace_parent(record.trace_parent) if record.trace_parent else None
        if self.takes_spans:
            trace_id = self._sampler.decide(parent)
            if trace_id is not None:
                assert self._otlp is not None
                self._otlp.record(record, trace_id, parent, time.time_ns(), self._server(record))
                return trace_id
        return parent.trace_id if parent is not None else ""

    def record_load(self, record: LoadRecord, now: float) -> None:
        """Record a load of a model that ended at `record.ended_at`, in monotonic seconds as
        `now`."""
        if not self.takes_spans:
            return
        trace_id = self._sampler.decide(None)
        if trace_id is not None:
            assert self._otlp is not None
            ago_ns = int(max(0.0, now - record.ended_at) * 1e9)
            self._otlp.record_load(record, trace_id, time.time_ns() - ago_ns)

    def _server(self, record: ExchangeRecord) -> Server:
        """The server of an ended exchange, for its span."""
        endpoint = None if record.endpoint is None else self._dispatcher.fleet.get(record.endpoint)
        if endpoint is None:
            return UNKNOWN_SERVER
        has_answer = record.outcome in HELD_SLOT and 200 <= record.status < 300
        return Server(endpoint.spec.name, model_of(endpoint, record.model) if has_answer else "")

    async def prometheus(self) -> bytes:
        """All metrics as Prometheus text: read here and now, written in a thread."""
        return await asyncio.to_thread(prometheus_text, self.metrics.read())

    async def _report(self) -> None:
        assert self._otlp is not None
        while True:
            await asyncio.sleep(self._options.otlp.metrics_interval_s)
            self._otlp.send(self.metrics.read())

    def _dropped(self) -> dict[str, int]:
        dropped = {"log_lines": self._sources.dropped_log_lines()}
        if self._otlp is not None:
            dropped |= self._otlp.dropped()
        return dropped

    def _gauges(self) -> dict[str, int]:
        """Over all endpoints, by Paddler's names. Foreign slots are processing too."""
        counts = [self._dispatcher.view.slot_counts(one) for one in self._dispatcher.fleet]
        return {
            "slots_idle": sum(slots.idle for slots in counts),
            "slots_processing": sum(slots.leased + slots.foreign for slots in counts),
            "requests_buffered": len(self._dispatcher.queue),
        }
