"""Connects the status pages to the parts of a running service."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from extproc.app.pages.actions import Actions
from extproc.app.pages.activity import Activity
from extproc.app.version import own_version
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.fleet_health import fleet_health
from extproc.status import (
    Countdown,
    Hosts,
    QueuePosition,
    StatusServer,
    StatusSources,
    why_not_ready,
)
from extproc.status.status_json import status_json
from extproc.telemetry import Telemetry
from extproc.xds import EndpointDiscovery


class Pages:
    """The service sets `is_serving`: false before it serves and once it stops."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        discovery: EndpointDiscovery,
        telemetry: Telemetry,
        find_position: Callable[[str], QueuePosition | None],
        problems: Callable[[], Sequence[str]],
        hosts: Hosts,
        bypassed: Callable[[], int],
        activity: Activity,
        actions: Actions,
        links: Mapping[str, str],
        machines: Callable[[float], list[dict[str, Any]]] = lambda _: [],
        processes: Callable[[], Processes] | None = None,
        may_ask: Callable[[str, str], bool] = lambda *_: True,
    ) -> None:
        self._processes = processes
        self._dispatcher = dispatcher
        self._registry = registry
        self._discovery = discovery
        self._telemetry = telemetry
        self._problems = problems
        self._bypassed = bypassed
        self._actions = actions
        self._machines = machines
        self._version = own_version()
        self._started_at = time.monotonic()
        self._server = StatusServer(
            StatusSources(
                health=lambda: fleet_health(dispatcher),
                status=self._status,
                activity=activity.as_json,
                obstacles=self.obstacles,
                metrics=telemetry.prometheus,
            ),
            [*Countdown(find_position, may_ask).routes(), *actions.routes()],
            hosts,
            links,
        )
        self.is_serving = False

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; raises `OSError`."""
        return await self._server.start(host, port)

    async def stop(self) -> None:
        await self._server.stop()

    def _status(self) -> dict[str, Any]:
        now = time.monotonic()
        machines = self._machines(now)
        return {
            **({} if self._processes is None else {"processes": self._processes().as_json()}),
            "version": self._version,
            "uptime_s": round(now - self._started_at, 1),
            "not_ready": list(self.obstacles()),
            "problems": list(self._problems()),
            "takes_actions": self._actions.is_allowed,
            **status_json(
                self._dispatcher,
                exchanges=len(self._registry),
                envoys=self._discovery.envoys(),
                outcomes=self._telemetry.outcomes(),
                bypassed=self._bypassed(),
                now=now,
            ),
            **({"machines": machines} if machines else {}),
        }

    def obstacles(self) -> tuple[str, ...]:
        """Why the picker is not ready, as text; empty if it is."""
        if not self.is_serving:
            return ("the picker is starting or stopping",)
        return why_not_ready(self._dispatcher)
