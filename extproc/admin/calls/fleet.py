"""The streaming call about the fleet as a whole, for an agent that reports it to a parent."""

import asyncio
import logging
import time
from typing import Final

from extproc.admin.call_errors import Context, maps_errors
from extproc.admin.dependencies import AdminCalls
from extproc.core.observation import MAX_ENTRIES
from extproc.core.views.fleet_capacity import FleetCapacity, fleet_capacity
from extproc.pb.coxswain.v1 import admin_pb2 as pb

INTERVAL_S: Final = 0.02
"""The shortest time between two messages."""
SIGN_OF_LIFE_S: Final = 1.0
MAX_SHARE: Final = 0.05
"""Of the event loop's time that counting may take; a huge fleet is counted less often."""

log = logging.getLogger("coxswain.admin")


class FleetCalls(AdminCalls):
    """Streams the capacity of the fleet."""

    @maps_errors
    async def WatchFleet(  # noqa: N802  # gRPC names it
        self, _: pb.WatchFleetRequest, context: Context
    ) -> None:
        dispatcher = self._dispatcher
        sent: FleetCapacity | None = None
        sent_at = 0.0
        while True:
            began_s = time.thread_time()  # time during which the machine stalls does not count
            capacity = fleet_capacity(dispatcher.view)
            now = self._dependencies.clock()
            if capacity != sent or now - sent_at >= SIGN_OF_LIFE_S:
                sent, sent_at = capacity, now
                await context.write(fleet_message(capacity))
            cost_s = time.thread_time() - began_s
            await asyncio.sleep(max(INTERVAL_S, cost_s / MAX_SHARE))


def fleet_message(capacity: FleetCapacity) -> pb.WatchFleetResponse:
    """The capacity as a message; of more than `MAX_ENTRIES` models the first ones."""
    has_own_slots = not capacity.has_common_slots
    message = pb.WatchFleetResponse(
        slots=capacity.slots,
        busy_slots=capacity.busy,
        context_tokens=capacity.context_tokens,
    )
    for name, model in list(capacity.models.items())[:MAX_ENTRIES]:
        message.models.add(
            name=name,
            aliases=sorted(model.aliases)[:MAX_ENTRIES],
            is_loaded=model.is_loaded,
            slots=model.slots if has_own_slots else None,
            busy_slots=model.busy if has_own_slots else None,
        )
    return message
