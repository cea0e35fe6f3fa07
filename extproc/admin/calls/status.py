"""The calls about the picker itself: its settings and its status."""

import json

from extproc.admin.call_errors import Context, maps_errors, not_now
from extproc.admin.dependencies import AdminCalls, ReloadError
from extproc.admin.status_json import status_json
from extproc.pb.coxswain.v1 import admin_pb2 as pb


class StatusCalls(AdminCalls):
    """Settings and status."""

    @maps_errors
    async def GetSettings(  # noqa: N802  # gRPC names it
        self, _request: pb.GetSettingsRequest, _: Context
    ) -> pb.GetSettingsResponse:
        settings = self._dependencies.settings
        return pb.GetSettingsResponse(json=json.dumps(settings.describe()), file=settings.file)

    @maps_errors
    async def ReloadSettings(  # noqa: N802
        self, request: pb.ReloadSettingsRequest, _: Context
    ) -> pb.ReloadSettingsResponse:
        try:
            reloaded = await self._dependencies.settings.reload(request.dry_run)
        except ReloadError as error:
            raise not_now(f"the settings are unchanged; fix this first:\n{error}") from None
        return pb.ReloadSettingsResponse(
            applied=reloaded.applied, needs_restart=reloaded.needs_restart
        )

    @maps_errors
    async def GetStatus(  # noqa: N802
        self, _request: pb.GetStatusRequest, _: Context
    ) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(**status_json(self._dependencies))
