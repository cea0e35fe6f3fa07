"""Connects the status pages to the parts of a running service."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from extproc.admin import AdminDependencies
from extproc.app.pages.actions import Actions
from extproc.app.pages.activity import Activity
from extproc.app.ports import ListenError
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.fleet_capacity import fleet_health
from extproc.settings.values import split_host_port
from extproc.status import (
    Countdown,
    Hosts,
    QueuePosition,
    StatusServer,
    StatusSources,
    why_not_ready,
)
from extproc.status.status_json import status_json
from extproc.stream.pending_streams import PendingStreams


class Pages:
    """The service sets `is_serving`: false before it serves and once it stops."""

    def __init__(
        self,
        picker: AdminDependencies,
        pending_streams: PendingStreams,
        activity: Activity,
        actions: Actions,
        *,
        metrics: Callable[[], Awaitable[bytes]],
        bypassed: Callable[[], int],
        machines: Callable[[float], list[dict[str, Any]]],
        who_asks: Callable[[str, str], str | None],
        hosts: Hosts,
        links: Mapping[str, str],
    ) -> None:
        """The admin service gets the same `picker`."""
        self._picker = picker
        self._bypassed = bypassed
        self._actions = actions
        self._machines = machines
        countdown = Countdown(
            lambda id_, client: queue_position(
                picker.dispatcher, pending_streams, id_, picker.clock(), client
            ),
            who_asks,
        )
        self._server = StatusServer(
            StatusSources(
                health=lambda: fleet_health(picker.dispatcher),
                status=self._status,
                activity=activity.as_json,
                obstacles=self.obstacles,
                problems=picker.problems,
                metrics=metrics,
            ),
            [*countdown.routes(), *actions.routes()],
            hosts,
            links,
        )
        self.is_serving = False

    async def start(self, address: str) -> int:
        """Listen, and return the port; raises `ListenError`."""
        try:
            return await self._server.start(*split_host_port(address))
        except OSError as error:
            raise ListenError(
                f"cannot listen on {address}: {error.strerror}. Change listen.http"
            ) from None

    async def stop(self) -> None:
        await self._server.stop()

    def _status(self) -> dict[str, Any]:
        picker, now = self._picker, self._picker.clock()
        machines = self._machines(now)
        return {
            **({} if picker.processes is None else {"processes": picker.processes().as_json()}),
            "version": picker.version,
            "uptime_s": round(now - picker.started_at, 1),
            "not_ready": list(self.obstacles()),
            "problems": list(picker.problems()),
            "takes_actions": self._actions.is_allowed,
            **status_json(
                picker.dispatcher,
                exchanges=len(picker.registry),
                envoys=picker.envoys(),
                outcomes=picker.outcomes(),
                bypassed=self._bypassed(),
                now=now,
            ),
            **({"machines": machines} if machines else {}),
        }

    def obstacles(self) -> tuple[str, ...]:
        """Why the picker is not ready, as text; empty if it is."""
        if not self.is_serving:
            return ("the picker is starting or stopping",)
        return why_not_ready(self._picker.dispatcher)


def queue_position(
    dispatcher: Dispatcher,
    pending_streams: PendingStreams,
    request_id: str,
    now: float,
    client: str = "",
) -> QueuePosition | None:
    """The queue position of a request, None if none with this id is queued. `client` is who asks:
    its own requests come before those of others."""
    ticket = pending_streams.find(request_id, client)
    if ticket is None:
        return None
    position = dispatcher.position_of(ticket, now)
    load = dispatcher.load_of(ticket.resolved.constraints.model)
    return QueuePosition(
        position=position.position,
        queued=position.queued,
        waited_s=now - ticket.entered_at,
        expected_s=position.expected_s,
        order=dispatcher.queue_order.by_size_label,
        load="" if load is None else load.subject,
        note="" if load is None else load.note(now),
    )
