"""The streaming calls about endpoints: WatchEndpoints and Drain."""

import asyncio
import contextlib
import logging
from typing import Final

from extproc.admin import arguments
from extproc.admin.call_errors import Context, maps_errors, not_now
from extproc.admin.dependencies import AdminCalls, AdminDependencies
from extproc.admin.endpoint_broadcaster import EndpointBroadcaster
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MESSAGE_ENDPOINTS: Final = 500
"""Endpoints in one message at most: far below the 4 MiB that clients take."""
SIGN_OF_LIFE_S: Final = 1.0

log = logging.getLogger("coxswain.admin")


class WatchCalls(AdminCalls):
    """Streams the changes of the fleet, and the progress of drains."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        super().__init__(dependencies)
        self._broadcaster = EndpointBroadcaster(dependencies.dispatcher, dependencies.clock)

    @maps_errors
    async def WatchEndpoints(  # noqa: N802  # gRPC names it
        self, request: pb.WatchEndpointsRequest, context: Context
    ) -> None:
        pool = arguments.find_pool(self._dispatcher.view.pools, request.pool)
        is_complete = False
        shown: set[str] = set()
        with self._broadcaster.watch() as watcher:
            while True:
                message = pb.WatchEndpointsResponse()
                for address, endpoint in watcher.take(MESSAGE_ENDPOINTS):
                    if endpoint is not None and pool in ("", endpoint.pool):
                        message.changed.append(endpoint)
                        shown.add(str(address))
                    elif not pool or str(address) in shown:  # it left the fleet, or the pool
                        message.removed.append(str(address))
                        shown.discard(str(address))
                if not is_complete:
                    is_complete = message.is_snapshot_complete = not watcher.pending
                await context.write(message)
                await watcher.changed.wait()

    @maps_errors
    async def Drain(  # noqa: N802
        self, request: pb.DrainRequest, context: Context
    ) -> None:
        deadline_s = arguments.read_deadline(request.deadline_s)
        endpoint = arguments.find_endpoint(self._dispatcher.fleet, request.address)
        if endpoint.is_removed:
            raise not_now(f"{endpoint.address} left the fleet and drains without this call")
        began_at = self._dependencies.clock()
        self._dispatcher.set_intent(endpoint.address, Intent.DRAINING, began_at)
        log.info("an operator drains %s", self._dispatcher.fleet.full_name_of(endpoint.address))
        at_start = self._running(endpoint)
        with self._broadcaster.watch() as watcher:
            while True:
                watcher.take(len(watcher.pending))
                elapsed_s = self._dependencies.clock() - began_at
                message = pb.DrainResponse(
                    state=self._state(endpoint, elapsed_s, deadline_s),
                    running=self._running(endpoint),
                    running_at_start=at_start,
                    elapsed_s=elapsed_s,
                )
                await context.write(message)
                if message.state != pb.DrainResponse.STATE_DRAINING:
                    return
                rest_s = SIGN_OF_LIFE_S
                if deadline_s is not None:
                    rest_s = min(rest_s, max(0.001, deadline_s - elapsed_s))
                await self._next_change(watcher.changed, endpoint, message.running, rest_s)

    async def _next_change(
        self, changed: asyncio.Event, endpoint: Endpoint, running: int, deadline_s: float
    ) -> None:
        """Wait until fewer run there or something else is wanted of it, or patience ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while self._running(endpoint) == running and self._is_draining(endpoint):
                    changed.clear()
                    await changed.wait()

    def _state(
        self, endpoint: Endpoint, elapsed_s: float, deadline_s: float | None
    ) -> pb.DrainResponse.State:
        if not self._is_draining(endpoint):
            return pb.DrainResponse.STATE_CALLED_OFF
        if self._running(endpoint) == 0:
            return pb.DrainResponse.STATE_DRAINED
        if deadline_s is not None and elapsed_s >= deadline_s:
            return pb.DrainResponse.STATE_DEADLINE_PASSED
        return pb.DrainResponse.STATE_DRAINING

    def _is_draining(self, endpoint: Endpoint) -> bool:
        return endpoint.is_removed or endpoint.intent is Intent.DRAINING

    def _running(self, endpoint: Endpoint) -> int:
        """Leases of it; none once it is dropped from the fleet."""
        if self._dispatcher.fleet.get(endpoint.address) is not endpoint:
            return 0
        return len(self._dispatcher.view.slots_at(endpoint.address).leases)
