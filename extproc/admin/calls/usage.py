"""The call about usage."""

import time
from typing import Final

from extproc.admin.arguments import read_limit
from extproc.admin.call_errors import Context, invalid, maps_errors, not_now
from extproc.admin.dependencies import AdminCalls
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.usage.counts import COUNTED, HOUR_S
from extproc.usage.store import UsageError, UsageRow

LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000

GROUPS: Final = {
    pb.USAGE_GROUP_CLIENT: "client",
    pb.USAGE_GROUP_OBJECTIVE: "objective",
    pb.USAGE_GROUP_MODEL: "model",
    pb.USAGE_GROUP_TIER: "tier",
}
DEFAULT: Final = ("client", "objective", "model")
OFF: Final = (
    "usage is not counted: set usage.path to a file, print Envoy's configuration again "
    "(`coxswain config envoy`), and restart both"
)


class UsageCalls(AdminCalls):
    """What clients used."""

    @maps_errors
    async def ListUsage(  # noqa: N802  # gRPC names it
        self, request: pb.ListUsageRequest, _: Context
    ) -> pb.ListUsageResponse:
        limit = read_limit(request.limit, "limit", LIMIT, MAX_LIMIT)
        since_s, by = request.since_s, set(request.by)
        if not 0.0 <= since_s < float("inf"):
            raise invalid("since_s must be a number of seconds, 0 or more")
        if by - GROUPS.keys() - {pb.USAGE_GROUP_TOTAL}:
            raise invalid("by must name client, objective, model, tier or total")
        read_usage = self._dependencies.read_usage
        if read_usage is None:
            raise not_now(OFF)
        since = max(0.0, (time.time() - since_s) // HOUR_S * HOUR_S) if since_s else 0.0
        fields = [GROUPS[group] for group in GROUPS if group in by] if by else DEFAULT
        try:
            rows = await read_usage(since, fields, MAX_LIMIT)
        except UsageError as error:
            raise not_now(str(error)) from None
        return pb.ListUsageResponse(usage=map(_message, rows[:limit]), total=len(rows))


def _message(row: UsageRow) -> pb.Usage:
    counts = {name: getattr(row.counts, name) for name in COUNTED}
    return pb.Usage(**row.key._asdict(), **counts)
