"""The admin port: what operators and agents call, on a gRPC server of its own."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import grpc

from extproc.admin import AdminDependencies, AdminService, add_reflection
from extproc.admin.agents import SERVICE as AGENTS_SERVICE
from extproc.admin.agents import AgentsService
from extproc.admin.dependencies import (
    AdminEndpoints,
    PlacementAccess,
    ReadUsage,
    SettingsAccess,
)
from extproc.admin.health import add_health
from extproc.admin.keepers import SERVICE as KEEPERS_SERVICE
from extproc.admin.keepers import KeepersService
from extproc.admin.service import SERVICE as ADMIN_SERVICE
from extproc.app.ports import bind
from extproc.app.security.exposure import Secrets
from extproc.app.version import own_version
from extproc.core.address import Address
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import ExchangeOptions
from extproc.transport.health import SERVICE as HEALTH_SERVICE
from extproc.transport.health import Health
from extproc.xds import EndpointDiscovery

SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * 1024 * 1024),
)
STOP_GRACE_S: Final = 0.2


class AdminPort:
    """Built with the service, started after it, stopped before it."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        settings: SettingsAccess,
        added: AdminEndpoints,
        exchange_options: Callable[[], ExchangeOptions],
        discovery: EndpointDiscovery,
        health: Health,
        not_ready_reason: Callable[[], str],
        problems: Callable[[], Sequence[str]],
        outcomes: Callable[[], Mapping[str, int]],
        agents: AgentsService,
        keepers: KeepersService,
        placement: PlacementAccess,
        address_rejection: Callable[[Address, str], str],
        read_usage: ReadUsage | None = None,
        processes: Callable[[], Processes] | None = None,
    ) -> None:
        self._agents = agents
        self._keepers = keepers
        self._health = health
        self._server: grpc.aio.Server | None = None
        self.service = AdminService(
            AdminDependencies(
                dispatcher=dispatcher,
                registry=registry,
                clock=time.monotonic,
                settings=settings,
                added=added,
                explain=lambda inquiry: dry_run(
                    dispatcher, exchange_options(), inquiry, time.monotonic()
                ),
                envoys=discovery.envoys,
                address_rejection=address_rejection,
                not_ready_reason=not_ready_reason,
                problems=problems,
                outcomes=outcomes,
                version=own_version(),
                started_at=time.monotonic(),
                keepers=keepers,
                read_usage=read_usage,
                placement=placement,
                processes=processes,
            )
        )

    async def start(self, address: str, secrets: Secrets) -> int:
        """Serve at `address`; returns the port. Raises `ListenError` if it cannot."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=(secrets.guard,))
        self.service.add_to(self._server)
        self._agents.add_to(self._server)
        self._keepers.add_to(self._server)
        add_health(self._server, self._health)
        add_reflection(
            self._server, (ADMIN_SERVICE, AGENTS_SERVICE, KEEPERS_SERVICE, HEALTH_SERVICE)
        )
        port = bind(self._server, address, "listen.admin", secrets.admin_credentials)
        await self._server.start()
        return port

    async def stop(self) -> None:
        self._agents.close()
        self._keepers.close()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
