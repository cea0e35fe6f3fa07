"""Connects the status pages to the parts of a running service."""

from collections.abc import Awaitable, Callable, Mapping
from itertools import chain, islice
from typing import Any

from extproc.admin import AdminDependencies
from extproc.admin.endpoint_json import endpoint_json
from extproc.admin.status_json import status_json
from extproc.app.pages.actions import Actions
from extproc.app.pages.activity import Activity
from extproc.app.pages.keys import KeysPage
from extproc.app.ports import ListenError
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.health import Health
from extproc.core.fleet.membership import Fleet
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.fleet_capacity import fleet_health
from extproc.settings.values import split_host_port
from extproc.status import (
    Countdown,
    Hosts,
    QueuePosition,
    StatusServer,
    StatusSources,
)
from extproc.status.playground import Playground
from extproc.stream.pending_streams import PendingStreams


class Pages:
    """Belongs to one event loop."""

    def __init__(
        self,
        picker: AdminDependencies,
        pending_streams: PendingStreams,
        activity: Activity,
        actions: Actions,
        keys: KeysPage,
        playground: Playground,
        *,
        metrics: Callable[[], Awaitable[bytes]],
        who_asks: Callable[[str, str], str | None],
        hosts: Hosts,
        links: Mapping[str, str],
    ) -> None:
        """The admin service gets the same `picker`."""
        self._picker = picker
        countdown = Countdown(
            lambda id_, client: queue_position(
                picker.dispatcher, pending_streams, id_, picker.clock(), client
            ),
            who_asks,
        )
        self._server = StatusServer(
            StatusSources(
                health=lambda: fleet_health(picker.dispatcher.view),
                status=self._status,
                activity=activity.as_json,
                obstacles=picker.obstacles,
                problems=picker.problems,
                metrics=metrics,
            ),
            [*countdown.routes(), *actions.routes(), *keys.routes(), *playground.routes()],
            hosts,
            links,
        )

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

    def _status(self, limit: int | None, named: str) -> dict[str, Any]:
        """The answers of `GetStatus` and, as `endpoints`, of `ListEndpoints`."""
        dispatcher, now = self._picker.dispatcher, self._picker.clock()
        return {
            **status_json(self._picker),
            "endpoints": [
                endpoint_json(dispatcher, endpoint, now)
                for endpoint in shown_endpoints(dispatcher.fleet, limit, named)
            ],
        }


def shown_endpoints(fleet: Fleet, limit: int | None, named: str) -> list[Endpoint]:
    """At most `limit` endpoints, those with issues or down first, and with them the one of the
    unique name or address `named`. O(endpoints)."""
    if limit is None or len(fleet) <= limit:
        return list(fleet)
    urgent = [one for one in fleet if one.issues or one.health is Health.DOWN]
    rest = (one for one in fleet if not one.issues and one.health is not Health.DOWN)
    chosen = {one.address: one for one in islice(chain(urgent, rest), limit)}
    if named:
        chosen |= {
            one.address: one
            for one in fleet
            if named in (str(one.address), fleet.name_of(one.address))
        }
    return list(chosen.values())


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
    position = dispatcher.view.position_of(ticket, now)
    load = dispatcher.view.load_of(ticket.resolved.constraints.model, ticket.request.pool)
    return QueuePosition(
        position=position.position,
        queued=position.queued,
        waited_s=now - ticket.entered_at,
        expected_s=position.expected_s,
        order=dispatcher.view.order_of(ticket).label,
        load="" if load is None else load.subject,
        note=dispatcher.view.note_of(ticket, now),
    )
