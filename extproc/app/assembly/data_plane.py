"""What serves Envoy's calls, and what is recorded about them."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

from extproc.app.assembly.core import CoreAssembly
from extproc.app.assembly.fleet import FleetAssembly
from extproc.app.assembly.models import ModelsAssembly
from extproc.app.core_events import CoreEvents
from extproc.app.logs import dropped_lines
from extproc.app.pages.activity import Activity
from extproc.app.records import Records
from extproc.app.request_log import is_logged, log_request
from extproc.app.version import own_version
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.objective import Criticality
from extproc.core.placement.load_record import LoadRecord
from extproc.core.placement.wanted_models import Change
from extproc.core.processes import Processes
from extproc.core.views.wake_advisor import SleepingMachine
from extproc.records.fleet_events import FleetEvents
from extproc.settings import Settings
from extproc.stream.envoy.access_log import AccessLog
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.options import exchange_options
from extproc.stream.servicer import ExternalProcessor
from extproc.telemetry.environment import read_environment
from extproc.telemetry.hub import Telemetry, TelemetryOptions
from extproc.telemetry.metrics import TelemetrySources
from extproc.transport import ServeCall, ServiceTable
from extproc.transport.health import Health

log = logging.getLogger("coxswain.service")


class DataPlaneAssembly:
    """`table` has the calls by method."""

    def __init__(
        self,
        core: CoreAssembly,
        fleet: FleetAssembly,
        models: ModelsAssembly,
        settings: Settings,
        health: Health,
        problems: Callable[[], tuple[str, ...]],
        processes: Callable[[], Processes] | None,
    ) -> None:
        """`problems` are those of the sources in the settings."""
        self._core = core
        self._fleet = fleet
        self._health = health
        self.telemetry = Telemetry(
            core.dispatcher,
            TelemetrySources(
                running=lambda: core.running,
                queue_depths=self._queue_depths,
                problems=problems,
                dropped_log_lines=dropped_lines,
                audit_corrections=core.auditor.corrections,
                bypassed=lambda: core.bypasses.total,
                loop_lag=core.lag.read,
                envoy_failures=core.envoy_counters.read,
                usage=None if core.usage is None else core.usage.since_start,
                models_loaded=models.placement.models_loaded,
                model_loads_s=models.placement.model_loads_s,
                model_changes=models.placement.changes_total,
                machine_changes=models.sleeping.changes_total,
                machine_wakes_s=models.sleeping.wakes_s,
                processes=processes,
                rule_states=lambda: {} if core.rules is None else core.rules.states(),
                rule_faults=lambda: {} if core.rules is None else core.rules.faults(),
            ),
            TelemetryOptions(
                version=own_version(), otlp=read_environment(os.environ), statsd=settings.statsd
            ),
        )
        core.on_observed = self.telemetry.metrics.scraped
        self.events = FleetEvents()
        self.records = Records(settings.records, core.dispatcher, core.registry)
        models.placement.on_loaded = self._record_load
        models.placement.on_unloading = self._record_unload
        models.sleeping.on_event = self._record_power
        self.activity = Activity(
            core.dispatcher,
            core.registry,
            time.monotonic,
            generated_tokens=self.telemetry.metrics.generated_tokens,
            bypassed=lambda: core.bypasses.total,
            events=self.events,
            rule_problems=lambda: () if core.rules is None else core.rules.problems(),
            kept=models.placement.addresses,
            keys=core.client_keys.names,
            limits=core.limits,
        )
        self._access_log = access_log = AccessLog(
            core.registry, fleet.sources.scrape_now, core.bypasses.add, time.monotonic
        )
        self.processor = ExternalProcessor(
            core.dispatcher,
            core.pending_streams,
            core.registry,
            exchange_options(settings, int(time.time()), core.limits, core.client_keys.known),
            time.monotonic,
            self._record,
            self._wants_traces,
            has_reports=lambda: access_log.is_heard,
        )
        self.core_events = CoreEvents(
            core.dispatcher,
            core.pending_streams,
            time.monotonic,
            wake_at=core.timer.wake_at,
            scrape=fleet.sources.scrape_now,
            membership_changed=fleet.membership_changed,
        )

    def table(self) -> ServiceTable:
        """What serves Envoy's calls, by method."""
        table: ServiceTable = {}
        fleet = self._fleet
        for part in (
            self.processor,
            self._access_log,
            fleet.discovery,
            fleet.clusters,
            self._health,
        ):
            part.add_to(table)
        table[PROCESS] = self._counted(table[PROCESS])
        return table

    def serve_pools(self, settings: Settings) -> dict[str, ServeCall]:
        """What serves ext_proc at the port of each pool."""
        return {name: self._counted(self.processor.serve_pool(name)) for name in settings.pools}

    def _counted(self, serve: ServeCall) -> ServeCall:
        usage = self._core.usage
        return serve if usage is None else usage.serve(serve)

    def renew(self, settings: Settings) -> None:
        """Give new exchanges other options; those that run keep theirs."""
        core = self._core
        self.processor.options = exchange_options(
            settings, self.processor.options.started_at, core.limits, core.client_keys.known
        )

    async def drain(self, timeout_s: float) -> None:
        """Wait until the running exchanges have ended, but no longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.processor.idle.wait()
        except TimeoutError:
            running = len(self._core.registry)
            log.warning("exchanges that still run after %g s: %d", timeout_s, running)

    def _queue_depths(self) -> dict[str, int]:
        queue = self._core.dispatcher.queue
        return {criticality.label: queue.count_of(criticality) for criticality in Criticality}

    def _wants_traces(self) -> bool:
        return self.telemetry.takes_spans or is_logged()

    def _record(self, record: ExchangeRecord) -> None:
        self.activity.request_ended(record)
        if self._core.usage is not None:
            self._core.usage.record(record)
        log_request(record, self.telemetry.record(record))
        self.records.request_ended(record)

    def _record_load(self, record: LoadRecord) -> None:
        self.telemetry.record_load(record, time.monotonic())
        kind, text = "model-loaded", f"{record.model} was loaded within {record.load_s:.1f} s"
        if record.problem:
            kind, text = "model-failed", f"{record.model} could not be loaded: {record.problem}"
        self.events.add(kind, text, name=record.machine, model=record.model)

    def _record_unload(self, change: Change) -> None:
        text = f"{change.model} is unloaded: {change.reason}"
        self.events.add("model-unloading", text, name=change.machine, model=change.model)

    def _record_power(self, kind: str, text: str, machine: SleepingMachine) -> None:
        address = "" if machine.keepers else str(machine.endpoints[0].address)
        self.events.add(kind, text, address=address, name=machine.name)
