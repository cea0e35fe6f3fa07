"""The data of `coxswain top`: a snapshot of the picker from the admin API."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import plain
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MAX_REQUESTS: Final = 50
"""The limit of running and of queued requests; more do not fit on a screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopData:
    """Endpoints, the busiest first; running requests, the oldest first; then the queue."""

    status: pb.GetStatusResponse
    endpoints: Sequence[pb.Endpoint]
    running: Sequence[pb.Request]
    queued: Sequence[pb.Request]

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "status": plain(self.status),
            "endpoints": [plain(endpoint) for endpoint in self.endpoints],
            "running": [plain(request) for request in self.running],
            "queued": [plain(request) for request in self.queued],
        }


async def read_top_data(picker: AdminClient, pool: str = "") -> TopData:
    """Request all data at once, of requests and endpoints only those of `pool` if that is given;
    raises `PickerError`."""
    running = pb.ListRequestsRequest(
        limit=MAX_REQUESTS,
        states=[pb.REQUEST_STATE_RUNNING, pb.REQUEST_STATE_RESPONDING],
        pool=pool,
    )
    queued = pb.ListRequestsRequest(limit=MAX_REQUESTS, states=[pb.REQUEST_STATE_QUEUED], pool=pool)
    status, endpoints, ran, in_queue = await asyncio.gather(
        picker.ask(picker.admin.GetStatus, pb.GetStatusRequest()),
        picker.all_endpoints(pool),
        picker.ask(picker.admin.ListRequests, running),
        picker.ask(picker.admin.ListRequests, queued),
    )
    return TopData(
        status=status,
        endpoints=sorted(endpoints, key=_load),
        running=ran.requests,
        queued=in_queue.requests,
    )


def _load(endpoint: pb.Endpoint) -> tuple[float, int, str]:
    """The larger share of busy slots first, then the larger number, then by name."""
    slots = endpoint.slots
    busy = slots.leased + slots.foreign
    return (-busy / max(1, slots.total), -busy, endpoint.name or endpoint.address)
