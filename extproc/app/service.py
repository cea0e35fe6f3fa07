"""The running picker: builds, starts and stops all parts in order."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from extproc.admin import AdminDependencies, AdminService
from extproc.admin.agents import SERVICE as AGENTS_SERVICE
from extproc.admin.auth.guard import Guard
from extproc.admin.external_scaler import SERVICE as KEDA_SERVICE
from extproc.admin.external_scaler import ExternalScaler
from extproc.admin.keepers import SERVICE as KEEPERS_SERVICE
from extproc.admin.keepers import KeepersDependencies, KeepersService
from extproc.admin.service import SERVICE as ADMIN_SERVICE
from extproc.app import options
from extproc.app.auditor import Auditor
from extproc.app.core_events import CoreEvents
from extproc.app.core_timer import CoreTimer
from extproc.app.discovery.fleet_sources import FleetSources
from extproc.app.grpc_port import ADMIN_OPTIONS, KEDA_OPTIONS, GrpcPort
from extproc.app.live_settings import LiveSettings
from extproc.app.logs import dropped_lines
from extproc.app.monitoring.bypasses import Bypasses
from extproc.app.monitoring.envoy_counters import EnvoyCounters
from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.pages.actions import Actions
from extproc.app.pages.activity import Activity
from extproc.app.pages.pages import Pages
from extproc.app.placement import Placement
from extproc.app.ports import DataPlane, DataPlaneServer, ListenError, data_plane_server
from extproc.app.request_log import is_logged, log_request
from extproc.app.routers import Routers
from extproc.app.scale_command import ScaleCommand
from extproc.app.security import exposure
from extproc.app.security.client_keys import ClientKeys
from extproc.app.usage import Usage
from extproc.app.version import own_version
from extproc.core.address import Address
from extproc.core.client_limits import ClientLimits
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.objective import Criticality
from extproc.core.observation import Observation
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.scale_advisor import ModelScale
from extproc.settings import Settings, SettingsError
from extproc.stream.dry_run import dry_run
from extproc.stream.envoy.access_log import AccessLog
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.servicer import ExternalProcessor
from extproc.telemetry.hub import Telemetry
from extproc.telemetry.metrics import TelemetrySources
from extproc.transport import ServiceTable, descriptors
from extproc.transport.health import Health
from extproc.usage.meter import ReadResponse
from extproc.xds import ClusterDiscovery, EndpointDiscovery
from scraper.loop import Scraper
from scraper.schedule import ScrapePriority

STOP_GRACE_S: Final = 0.5
RETRY_S: Final = 2.0
"""The pause before a port that was taken is tried again."""

log = logging.getLogger("coxswain.service")


class Service:
    """One picker. `start` returns when it serves; `stop` when all of its parts have ended."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings] | None = None,
        file: str = "",
        *,
        data_plane: DataPlane = data_plane_server,
        processes: Callable[[], Processes] | None = None,
    ) -> None:
        """`data_plane` makes the server for Envoy; `processes` are those that serve beside this
        one, for operators to see."""
        self._data_plane = data_plane
        self.settings = LiveSettings(
            settings, self._apply, self._rehearse, self._reread, load, file
        )
        self.dispatcher = Dispatcher(Random(), options.dispatcher_options(settings))
        self._pending_streams = PendingStreams()
        self._timer = CoreTimer(self.dispatcher.advance)
        self._lag = LoopLag(time.monotonic, settings.envoy.message_timeout_s / 2)
        self._bypasses = Bypasses(time.monotonic, self._lag)
        self._envoy_counters = EnvoyCounters(settings.envoy.stats, time.monotonic)
        self._scraper = Scraper(
            sink=self._observe,
            priority=self._attention,
            options=options.scraper_options(settings),
            lost_s=self._lag.lost_s,
            name_of=self.dispatcher.fleet.full_name_of,
            wants_counters=self._wants_counters,
        )
        self._registry = ExchangeRegistry()
        self._limits = ClientLimits(options.client_limits(settings))
        usage = settings.usage
        self._usage = None
        if usage.path is not None:
            self._usage = Usage(
                Path(usage.path).expanduser(),
                usage.keep_days,
                self.dispatcher,
                self._registry,
                self._limits,
                self._scraper.scrape_now if usage.read_counters else None,
            )
        self._auditor = Auditor(
            self.dispatcher,
            self._registry,
            self._pending_streams,
            time.monotonic,
            self._limits,
        )
        self.discovery = EndpointDiscovery(
            self.dispatcher.fleet.membership,
            self.dispatcher.set_routable,
            set_issue=self.dispatcher.set_envoy_issue,
        )
        self._clusters = ClusterDiscovery(self.discovery.gate, self.discovery.set_refused)
        self.fleet_sources = FleetSources(
            self.dispatcher,
            self._scraper,
            self.settings,
            observe=self._observe,
            on_known=self.discovery.open,
            publish_cluster=self._clusters.publish,
            own_ports=lambda: (self.grpc_port, self.admin_port, self.http_port, self.keda_port),
        )
        self._access_log = AccessLog(
            self._registry, self.fleet_sources.scrape_now, self._bypasses.add, time.monotonic
        )
        self.client_keys = ClientKeys(settings)
        self.client_keys.on_renewed = self._check_keys
        self._keepers = KeepersService(
            KeepersDependencies(
                clock=time.monotonic,
                changed=lambda machine: self._placement.changed(machine),  # noqa: PLW0108  # it comes next
                forgotten=lambda machine: self._placement.forgotten(machine),  # noqa: PLW0108
            )
        )
        self._placement = Placement(
            self.dispatcher,
            self._want,
            time.monotonic,
            options.placement_options(settings),
            lambda record: self.telemetry.record_load(record, time.monotonic()),
        )
        self._routers = None
        if settings.swap.routers:
            self._routers = Routers(
                self.dispatcher,
                self._placement,
                target_of=self.fleet_sources.target,
                scrape=self._scraper.scrape_now,
                set_leaving=self._scraper.set_leaving,
                clock=time.monotonic,
                is_taken=lambda name: self._keepers.find(name) is not None,
            )
        self.processor = ExternalProcessor(
            self.dispatcher,
            self._pending_streams,
            self._registry,
            options.exchange_options(
                settings, int(time.time()), self._limits, self.client_keys.known
            ),
            time.monotonic,
            self._record,
            self._wants_traces,
        )
        self._health = Health()
        self.telemetry = Telemetry(
            self.dispatcher,
            TelemetrySources(
                running=lambda: len(self._registry) - len(self.dispatcher.queue),
                queue_depths=self._queue_depths,
                problems=self._source_problems,
                dropped_log_lines=dropped_lines,
                audit_corrections=self._auditor.corrections,
                bypassed=lambda: self._bypasses.total,
                loop_lag=self._lag.read,
                envoy_failures=self._envoy_counters.read,
                usage=None if self._usage is None else self._usage.since_start,
                models_loaded=self._placement.models_loaded,
                model_loads_s=self._placement.model_loads_s,
                model_changes=self._placement.changes_total,
                processes=processes,
            ),
            options.telemetry_options(settings, os.environ),
        )
        admin = AdminDependencies(
            dispatcher=self.dispatcher,
            registry=self._registry,
            clock=time.monotonic,
            settings=self.settings,
            added=self.fleet_sources.added,
            explain=lambda inquiry: dry_run(
                self.dispatcher, self.processor.options, inquiry, time.monotonic()
            ),
            envoys=self.discovery.envoys,
            address_rejection=self.fleet_sources.address_rejection,
            not_ready_reason=lambda: "; ".join(self._pages.obstacles()),
            problems=self._problems,
            outcomes=self.telemetry.metrics.outcomes,
            version=own_version(),
            started_at=time.monotonic(),
            keepers=self._keepers,
            placement=self._placement,
            read_usage=None if self._usage is None else self._usage.read,
            processes=processes,
        )
        admin_service = AdminService(admin)
        self._admin_port = GrpcPort(
            {
                ADMIN_SERVICE: admin_service,
                AGENTS_SERVICE: self.fleet_sources.agents,
                KEEPERS_SERVICE: self._keepers,
            },
            self._health,
            ADMIN_OPTIONS,
            descriptors.ADMIN,
        )
        scale = settings.scale
        self._scale_command = None
        if scale.command:
            self._scale_command = ScaleCommand(
                scale.command, scale.models, self._scale, time.monotonic, scale.command_timeout_s
            )
        scaler = ExternalScaler(self.dispatcher, time.monotonic)
        self._keda_port = GrpcPort(
            {KEDA_SERVICE: scaler}, self._health, KEDA_OPTIONS, descriptors.KEDA
        )
        self._activity = Activity(
            self.dispatcher,
            self._registry,
            time.monotonic,
            generated_tokens=self.telemetry.metrics.generated_tokens,
            bypassed=lambda: self._bypasses.total,
        )
        self._actions = Actions(admin_service)
        self._pages = Pages(
            admin,
            self._pending_streams,
            self._activity,
            self._actions,
            metrics=self.telemetry.prometheus,
            bypassed=lambda: self._bypasses.total,
            machines=self._placement.status,
            who_asks=self.client_keys.who_asks,
            hosts=options.page_hosts(settings),
            links=options.dashboard_links(settings),
        )
        self._core_events = CoreEvents(
            self.dispatcher,
            self._pending_streams,
            time.monotonic,
            wake_at=self._timer.wake_at,
            scrape=self.fleet_sources.scrape_now,
            membership_changed=self._membership_changed,
        )
        self._secrets: exposure.Secrets | None = None
        self._server: DataPlaneServer | None = None
        self._keda_opening: asyncio.Task[None] | None = None
        self._keda_problem = ""
        self.grpc_port = 0
        self.admin_port = 0
        self.keda_port = 0
        self.http_port = 0

    def prepare(self) -> None:
        """Read tokens and certificates long before `start`, as a spare does. They follow their
        files from then on, and a mistake in a file keeps what was read before. Raises
        `SettingsError`; blocks on the disk."""
        self._secrets = exposure.read_secrets(self.settings.present)

    async def start(self, inherited_keys: Mapping[str, str] | None = None) -> None:
        """Begin to serve; raises `ListenError` when a port cannot be had, and `SettingsError`.

        `inherited_keys` are those of the process before this one, for a keys file with a mistake.
        """
        settings = self.settings.present
        secrets = self._secrets or exposure.read_secrets(settings)
        self.client_keys.open(inherited_keys)
        self._actions.token = secrets.pages_token
        self._core_events.listen()
        self.dispatcher.set_loadable(
            options.SCALED_MODELS, options.scaled_models(settings), time.monotonic()
        )
        table = self.data_plane_table()
        listen = settings.listen
        self._server, self.grpc_port = self._data_plane(settings, table)
        try:
            self.admin_port = await self._admin_port.start(
                listen.admin,
                "listen.admin",
                secrets.admin_credentials,
                (Guard(secrets.operators_token, secrets.agents_token),),
            )
            if settings.keda.listen is not None and not await self._open_keda(secrets):
                self._keda_opening = asyncio.create_task(self._retry_keda(secrets))
            self.http_port = await self._pages.start(listen.http)
            if self._usage is not None:
                self._usage.start()
        except (ListenError, SettingsError):
            await self._server.stop(0.0)  # it listens already
            await self._stop_grpc_ports()  # they may serve already
            await self._pages.stop()
            raise
        self.telemetry.start()
        await self._server.start()
        self.fleet_sources.start()
        self.client_keys.start()
        self._auditor.start()
        self._lag.start()
        self._bypasses.start()
        self._envoy_counters.start()
        self._activity.start()
        if self._scale_command is not None:
            self._scale_command.start()
        self._health.set_ready(True)
        self._pages.is_serving = True
        log.info("serving Envoy on %s, operators on %s", listen.grpc, listen.admin)

    def _check_keys(self) -> None:
        """A revoked key opens no more for who waits with it."""
        for exchange in list(self._registry):
            exchange.check_key(time.monotonic())

    def take_response(self, response: ReadResponse) -> None:
        """A front has read a response, for the count of usage."""
        if self._usage is not None:
            self._usage.take_response(response)

    def data_plane_table(self) -> ServiceTable:
        """What serves Envoy's calls, by method."""
        table: ServiceTable = {}
        for part in (
            self.processor,
            self._access_log,
            self.discovery,
            self._clusters,
            self._health,
        ):
            part.add_to(table)
        if self._usage is not None:
            table[PROCESS] = self._usage.serve(table[PROCESS])
        return table

    async def stop(self) -> None:
        """Reject queued requests, let running exchanges end within `drain_timeout_s`, then stop."""
        log.info(
            "stopping; queued requests, rejected now: %d; running exchanges, ended after %g s: %d",
            len(self.dispatcher.queue),
            self.settings.present.drain_timeout_s,
            len(self._registry) - len(self.dispatcher.queue),
        )
        self._pages.is_serving = False
        self._bypasses.stop()
        self._health.set_ready(False)
        self.processor.close()
        self.dispatcher.close(time.monotonic())
        await self._drain(self.settings.present.drain_timeout_s)
        if self._scale_command is not None:
            await self._scale_command.aclose()
        self._placement.stop()
        await self._stop_grpc_ports()
        self._clusters.close()
        self.discovery.close()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        await self.client_keys.aclose()
        await self.fleet_sources.aclose()
        if self._routers is not None:
            await self._routers.aclose()
        await self._scraper.aclose()
        await self._envoy_counters.aclose()
        self._auditor.stop()
        self._activity.stop()
        self._lag.stop()
        self._timer.stop()
        await self._pages.stop()
        if self._usage is not None:
            await self._usage.aclose()
        await self.telemetry.aclose()
        log.info("stopped")

    async def _open_keda(self, secrets: exposure.Secrets) -> bool:
        """Open KEDA's port. Requests do not need it: whether it could be opened."""
        address = self.settings.present.keda.listen
        assert address is not None
        try:
            self.keda_port = await self._keda_port.start(
                address, "keda.listen", secrets.keda_credentials
            )
        except ListenError as error:
            if not self._keda_problem:
                log.error("%s; KEDA is not answered until it can", error)
            self._keda_problem = str(error)
            return False
        self._keda_problem = ""
        return True

    async def _retry_keda(self, secrets: exposure.Secrets) -> None:
        while not await self._open_keda(secrets):  # noqa: ASYNC110 - a port of the system
            await asyncio.sleep(RETRY_S)
        log.info("KEDA is served on %s", self.settings.present.keda.listen)

    async def _stop_grpc_ports(self) -> None:
        if self._keda_opening is not None:
            self._keda_opening.cancel()
            await asyncio.wait({self._keda_opening})
        await self._keda_port.stop()
        self.fleet_sources.agents.close()
        self._keepers.close()
        await self._admin_port.stop()

    async def _drain(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.processor.idle.wait()
        except TimeoutError:
            running = len(self._registry)
            log.warning("exchanges that still run after %g s: %d", timeout_s, running)

    async def _apply(self, settings: Settings) -> Sequence[str]:
        """Apply the reloadable settings; raises `SettingsError` and changes nothing."""
        news = await self.fleet_sources.renew(settings)
        self.dispatcher.renew(options.dispatcher_options(settings))
        self._limits.renew(options.client_limits(settings), time.monotonic())
        self.processor.options = options.exchange_options(
            settings,
            self.processor.options.started_at,
            self._limits,
            self.client_keys.known,
        )
        logging.getLogger("coxswain").setLevel(settings.log.level.upper())
        return news

    async def _rehearse(self, settings: Settings) -> Sequence[str]:
        """Read what `_apply` would read; raises `SettingsError` where that would."""
        return await self.fleet_sources.rehearse(settings)

    async def _reread(self) -> Sequence[str]:
        """Reload the files with keys and CAs."""
        return await self.fleet_sources.reread()

    # Events from other parts, passed to the core

    def _membership_changed(self) -> None:
        self.discovery.membership_changed()
        self.fleet_sources.membership_changed()

    def _want(
        self,
        machine: str,
        models: Iterable[str],
        retried: Iterable[str],
        pinned: Iterable[str],
    ) -> None:
        """The placement's wishes for a machine: a router of ours, or one with a keeper."""
        if self._routers is None or not self._routers.want(machine, models, retried, pinned):
            self._keepers.want(machine, models, retried, pinned)

    def _observe(self, observation: Observation) -> None:
        if self._routers is not None:
            observation = self._routers.take(observation)
        self.telemetry.metrics.scraped(observation)
        self.dispatcher.observe(observation, time.monotonic())
        if self._usage is not None:
            self._usage.observe(observation)

    def _scale(self) -> dict[str, ModelScale]:
        """The wanted servers of the models that `scale.command` starts and stops."""
        names = self.settings.present.scale.models
        found = self.dispatcher.scale(time.monotonic(), names=names)
        return {name: found[self.dispatcher.canonical_model(name)] for name in names}

    def _wants_counters(self, address: Address) -> bool:
        return self._usage is not None and self._usage.wants_counters(address)

    def _attention(self, address: Address) -> ScrapePriority:
        if self.dispatcher.needs_frequent_scrapes(address):
            return ScrapePriority.HIGH
        return ScrapePriority.STEADY if self.dispatcher.has_leases(address) else ScrapePriority.IDLE

    def _queue_depths(self) -> dict[str, int]:
        queue = self.dispatcher.queue
        return {criticality.label: queue.count_of(criticality) for criticality in Criticality}

    def _source_problems(self) -> tuple[str, ...]:
        return (
            *self._scraper.problems,
            *self.fleet_sources.problems,
            *self.client_keys.problems(),
            *(self._usage.file_problems() if self._usage is not None else ()),
            *((self._keda_problem,) if self._keda_problem else ()),
        )

    def _problems(self) -> tuple[str, ...]:
        return (
            *self._source_problems(),
            *self._keepers.problems(),
            *self._bypasses.problems(),
            *self._envoy_counters.problems(),
            *self._lag.problems(),
            *(self._usage.problems() if self._usage is not None else ()),
            *(self._scale_command.problems() if self._scale_command is not None else ()),
        )

    def _wants_traces(self) -> bool:
        return self.telemetry.takes_spans or is_logged()

    def _record(self, record: ExchangeRecord) -> None:
        self._activity.ended(record)
        if self._usage is not None:
            self._usage.record(record)
        log_request(record, self.telemetry.record(record))
