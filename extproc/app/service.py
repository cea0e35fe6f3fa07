"""The running picker: builds, starts and stops all parts in order."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from extproc.admin.auth.guard import Guard
from extproc.admin.external_scaler import ExternalScaler
from extproc.app import options
from extproc.app.assembly.core import CoreAssembly
from extproc.app.assembly.data_plane import DataPlaneAssembly
from extproc.app.assembly.fleet import FleetAssembly
from extproc.app.assembly.models import ModelsAssembly
from extproc.app.assembly.operators import OperatorsAssembly
from extproc.app.keda_port import KedaPort
from extproc.app.live_settings import LiveSettings
from extproc.app.pool_ports import PoolPorts
from extproc.app.ports import DataPlane, DataPlaneServer, ListenError, data_plane_server
from extproc.app.rules import read_rules
from extproc.app.security import exposure
from extproc.app.version import own_version
from extproc.core.constraints import qualified
from extproc.core.processes import Processes
from extproc.settings import Settings, SettingsError
from extproc.transport import ServiceTable
from extproc.transport.health import Health
from extproc.usage.meter import ReadResponse

STOP_GRACE_S: Final = 0.5
RULES: Final = "routing.rules"
"""What each reload applies again."""

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
        self._serve_data_plane = data_plane
        self._secrets: exposure.Secrets | None = None
        self._server: DataPlaneServer | None = None
        self._pool_ports = PoolPorts()
        self.grpc_port = 0
        self.admin_port = 0
        self.http_port = 0
        self._health = Health()
        self.settings = LiveSettings(
            settings, self._apply, self._rehearse, self._reread, load, file
        )
        self.core = core = CoreAssembly(settings)
        self._keda = KedaPort(ExternalScaler(core.dispatcher, time.monotonic), self._health)
        self._fleet = FleetAssembly(core, self.settings, self._own_ports)
        self._models = ModelsAssembly(core, self._fleet, settings)
        self._data_plane = DataPlaneAssembly(
            core,
            self._fleet,
            self._models,
            settings,
            self._health,
            self._source_problems,
            processes,
        )
        self.operators = OperatorsAssembly(
            core,
            self._fleet,
            self._models,
            self._data_plane,
            self.settings,
            self._health,
            self._source_problems,
            processes,
        )
        self.dispatcher = core.dispatcher
        self.client_keys = core.client_keys
        self.discovery = self._fleet.discovery
        self.fleet_sources = self._fleet.sources
        self.fleet_sources.on_objects = lambda: self._renew_dispatcher(self.settings.present)
        self.processor = self._data_plane.processor
        self.telemetry = self._data_plane.telemetry
        self.events = self._data_plane.events
        self.settings.on_reload_ended = self.events.add

    @property
    def keda_port(self) -> int:
        """KEDA's port, 0 while it is not open."""
        return self._keda.number

    def prepare(self) -> None:
        """Read tokens and certificates long before `start`, as a spare does. They follow their
        files from then on, and a mistake in a file keeps what was read before. Raises
        `SettingsError`; blocks on the disk."""
        self._secrets = exposure.read_secrets(self.settings.present)
        self.core.use_rules(read_rules(self.settings.present))

    async def start(
        self,
        inherited_keys: Mapping[str, str] | None = None,
        inherited_ends: Mapping[str, float] | None = None,
    ) -> None:
        """Begin to serve; raises `ListenError` when a port cannot be had, and `SettingsError`.

        `inherited_keys` are those of the process before this one, for a keys file with a mistake,
        and `inherited_ends` the times at which some expire.
        """
        settings, operators = self.settings.present, self.operators
        if self._secrets is None:
            self.prepare()
        secrets = self._secrets
        assert secrets is not None
        self.client_keys.open(inherited_keys, inherited_ends)
        operators.actions.token = secrets.pages_token
        self._data_plane.core_events.listen()
        for pool, readings in options.scaled_models(settings).items():
            of_pool = qualified(pool, options.SCALED_MODELS)
            self.dispatcher.set_loadable(of_pool, readings, time.monotonic(), pool=pool)
        listen = settings.listen
        self._server, self.grpc_port = self._serve_data_plane(settings, self.data_plane_table())
        try:
            self.admin_port = await operators.admin_port.start(
                listen.admin,
                "listen.admin",
                secrets.admin_credentials,
                (Guard(secrets.operators_token, secrets.agents_token),),
            )
            if settings.keda.listen is not None:
                await self._keda.start(settings.keda.listen, secrets.keda_credentials)
            self.http_port = await operators.pages.start(listen.http)
            if self.core.usage is not None:
                self.core.usage.start()
            for checks in self.core.day_checks:
                await checks.check()
            await self._bind_pool_ports(settings)
        except (ListenError, SettingsError):
            await self._server.stop(0.0)  # it listens already
            await self._stop_grpc_ports()  # they may serve already
            await operators.pages.stop()
            raise
        self.telemetry.start()
        await self._server.start()
        await self._pool_ports.start(0.0)
        self.fleet_sources.start()
        self.core.start()
        self._data_plane.activity.start()
        self._data_plane.records.start()
        if operators.scale_command is not None:
            operators.scale_command.start()
        self._models.sleeping.start()
        self._health.set_ready(True)
        operators.readiness.is_serving = True
        log.info("serving Envoy on %s, operators on %s", listen.grpc, listen.admin)
        self.events.add("started", f"this picker ({own_version()}) serves")

    def take_response(self, response: ReadResponse) -> None:
        """A front has read a response, for the count of usage."""
        if self.core.usage is not None:
            self.core.usage.take_response(response)

    def data_plane_table(self) -> ServiceTable:
        """What serves Envoy's calls, by method."""
        return self._data_plane.table()

    async def stop(self) -> None:
        """Reject queued requests, let running exchanges end within `drain_timeout_s`, then stop."""
        drain_timeout_s = self.settings.present.drain_timeout_s
        log.info(
            "stopping; queued requests, rejected now: %d; running exchanges, ended after %g s: %d",
            len(self.dispatcher.queue),
            drain_timeout_s,
            self.core.running,
        )
        self.operators.readiness.is_serving = False
        self.core.bypasses.stop()
        self._health.set_ready(False)
        self.processor.close()
        self.dispatcher.close(time.monotonic())
        await self._data_plane.drain(drain_timeout_s)
        if self.operators.scale_command is not None:
            await self.operators.scale_command.aclose()
        await self._models.sleeping.aclose()
        self._models.placement.stop()
        await self._stop_grpc_ports()
        self._fleet.close()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        await self._pool_ports.stop(STOP_GRACE_S)
        await self.client_keys.aclose()
        await self.fleet_sources.aclose()
        await self._models.aclose()
        await self.core.aclose()
        self._data_plane.activity.stop()
        await self._data_plane.records.aclose()
        await self.operators.pages.stop()
        if self.core.usage is not None:
            await self.core.usage.aclose()
        await self.telemetry.aclose()
        log.info("stopped")

    async def _stop_grpc_ports(self) -> None:
        await self._keda.stop()
        self.fleet_sources.agents.close()
        self._models.keepers.close()
        await self.operators.admin_port.stop()

    async def _apply(self, settings: Settings) -> Sequence[str]:
        """Apply the reloadable settings; raises `SettingsError` and changes nothing."""
        rules = await asyncio.to_thread(read_rules, settings)
        await self._bind_pool_ports(settings)
        news = await self.fleet_sources.renew(settings)
        self.core.use_rules(rules)
        self._renew_dispatcher(settings)
        self.core.spill = settings.spill
        self.core.limits.renew(settings.clients.limits_for_core(), time.monotonic())
        self._data_plane.renew(settings)
        await self._pool_ports.start(STOP_GRACE_S)
        logging.getLogger("coxswain").setLevel(settings.log.level.upper())
        return news if rules is None else (*news, RULES)

    async def _bind_pool_ports(self, settings: Settings) -> None:
        """Listen on the ports of pools; raises `SettingsError`."""
        plane = self._data_plane
        await self._pool_ports.bind(settings, plane.table(), plane.serve_pools(settings))

    def _renew_dispatcher(self, settings: Settings) -> None:
        written = self.fleet_sources.below(settings)
        self.dispatcher.renew(options.dispatcher_options(written), time.monotonic())

    async def _rehearse(self, settings: Settings) -> Sequence[str]:
        """Read what `_apply` would read; raises `SettingsError` where that would."""
        rules = await asyncio.to_thread(read_rules, settings)
        news = await self.fleet_sources.rehearse(settings)
        return news if rules is None else (*news, RULES)

    async def _reread(self) -> Sequence[str]:
        """Reload the files with keys and CAs."""
        return await self.fleet_sources.reread()

    def _own_ports(self) -> tuple[int, ...]:
        return (
            *(self.grpc_port, self.admin_port, self.http_port, self.keda_port),
            *self._pool_ports.numbers,
        )

    def _source_problems(self) -> tuple[str, ...]:
        return (
            *self.core.source_problems(),
            *self.fleet_sources.problems,
            *self._keda.problems(),
        )
