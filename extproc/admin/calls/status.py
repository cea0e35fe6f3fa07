"""The calls about the picker itself: its settings and its status."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from extproc.admin.call_errors import courteous, not_now
from extproc.admin.dependencies import AdminDependencies, ReloadError
from extproc.admin.messages import slots_message
from extproc.core.processes import ClusterReport, Processes
from extproc.core.scheduler.snapshot import take_queue_snapshot
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminServicer

Context = grpc.aio.ServicerContext[Any, Any]


class StatusCalls(AdminServicer):
    """Settings and status."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        self._dependencies = dependencies

    @courteous
    async def GetSettings(  # noqa: N802  # gRPC names it
        self, _request: pb.GetSettingsRequest, _: Context
    ) -> pb.GetSettingsResponse:
        settings = self._dependencies.settings
        return pb.GetSettingsResponse(json=json.dumps(settings.describe()), file=settings.file)

    @courteous
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

    @courteous
    async def GetStatus(  # noqa: N802
        self, _request: pb.GetStatusRequest, _: Context
    ) -> pb.GetStatusResponse:
        dependencies = self._dependencies
        dispatcher = dependencies.dispatcher
        slots = pb.Slots()
        healths: Counter[str] = Counter()
        for endpoint in dispatcher.fleet:
            healths[endpoint.health.value] += 1
            part = slots_message(endpoint, dispatcher.slots_at(endpoint.address))
            slots.total += part.total
            slots.leased += part.leased
            slots.foreign += part.foreign
            slots.idle += part.idle
            slots.draining += part.draining
            slots.unusable += part.unusable
        now = dependencies.clock()
        queue = take_queue_snapshot(dispatcher, now)
        reason = dependencies.not_ready_reason()
        return pb.GetStatusResponse(
            version=dependencies.version,
            uptime_s=max(0.0, now - dependencies.started_at),
            is_ready=not reason,
            not_ready_reason=reason,
            problems=dependencies.problems(),
            slots=slots,
            endpoints_by_health=healths,
            running=dispatcher.running_requests,
            exchanges=len(dependencies.registry),
            queued=queue.queued,
            queue_max_requests=queue.max_requests,
            queued_by_criticality=queue.by_criticality,
            longest_wait_s=queue.longest_wait_s,
            expected_s=queue.expected_s,
            models=[
                pb.GetStatusResponse.ModelQueue(
                    model=model,
                    queued=one.queued,
                    by_reason={reason.value: many for reason, many in one.by_reason.items()},
                    idle_slots=one.idle_slots,
                )
                for model, one in sorted(queue.by_model.items())
            ],
            idle_note=queue.idle_note,
            outcomes=dependencies.outcomes(),
            fleet_version=dispatcher.fleet.membership().version,
            envoys=[
                pb.GetStatusResponse.Envoy(
                    node_id=envoy.node_id, acknowledged_version=envoy.acknowledged_version
                )
                for envoy in dependencies.envoys()
            ],
            processes=_processes_message(dependencies.processes),
        )


def _processes_message(
    read: Callable[[], Processes] | None,
) -> pb.GetStatusResponse.Processes | None:
    if read is None:
        return None
    found = read()
    last = found.last_takeover
    return pb.GetStatusResponse.Processes(
        fronts=found.fronts,
        takeovers=found.total_takeovers,
        takeovers_by_reason=found.takeovers,
        restarts=found.restarts,
        members=[
            pb.GetStatusResponse.Process(
                name=each.name,
                role=each.role,
                pid=each.pid,
                age_s=each.age_s,
                connections=each.connections,
                calls=each.calls,
                number=each.number,
            )
            for each in found.members
        ],
        last_takeover=None
        if last is None
        else pb.GetStatusResponse.Takeover(
            seconds=last.seconds, running=last.running, queued=last.queued, fronts=last.fronts
        ),
        cluster=None if found.cluster is None else _cluster_message(found.cluster),
    )


def _cluster_message(found: ClusterReport) -> pb.GetStatusResponse.Cluster:
    return pb.GetStatusResponse.Cluster(
        member=found.member,
        leader=found.leader,
        epoch=found.epoch,
        elections=found.elections,
        is_in_touch=found.is_in_touch,
        engine_error=found.engine_error,
        members=[
            pb.GetStatusResponse.Member(
                name=each.name,
                address=each.address,
                version=each.version,
                fronts=each.fronts,
                is_leading=each.is_leading,
            )
            for each in found.members
        ],
    )
