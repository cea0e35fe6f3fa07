"""The call about the number of servers that models need."""

from extproc.admin import arguments
from extproc.admin.call_errors import Context, maps_errors
from extproc.admin.dependencies import AdminCalls
from extproc.admin.status_json import scale_json
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MAX_OBJECTIVE_CHARS = 256


class ScaleCalls(AdminCalls):
    """What `coxswain scale` shows."""

    @maps_errors
    async def ListScale(  # noqa: N802  # gRPC names it
        self, request: pb.ListScaleRequest, _: Context
    ) -> pb.ListScaleResponse:
        if request.objective:
            arguments.checked(request.objective, "objective", MAX_OBJECTIVE_CHARS)
        dispatcher = self._dispatcher
        pool = arguments.find_pool(dispatcher.view.pools, request.pool)
        found = dispatcher.view.scale(self._dependencies.clock(), request.objective or None)
        wanted = (found[model] for model in sorted(found))
        return pb.ListScaleResponse(
            models=[scale_json(one) for one in wanted if pool in ("", one.pool)]
        )
