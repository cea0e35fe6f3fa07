"""The calls about the picker itself: its settings and its status."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

from extproc.admin.call_errors import Context, maps_errors, not_now
from extproc.admin.dependencies import AdminCalls, ReloadError
from extproc.core.bounds import Bound
from extproc.core.processes import ClusterReport, Processes
from extproc.core.views.pool_counts import PoolCounts, pool_counts
from extproc.core.views.snapshot import take_queue_snapshot
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
        dependencies = self._dependencies
        dispatcher = self._dispatcher
        slots: Counter[str] = Counter()
        healths: Counter[str] = Counter()
        for endpoint in dispatcher.fleet:
            healths[endpoint.health.value] += 1
            if not endpoint.spec.is_far:
                slots.update(asdict(dispatcher.view.slot_counts(endpoint)))
        now = dependencies.clock()
        queue = take_queue_snapshot(dispatcher.view, now)
        reason = "; ".join(dependencies.obstacles())
        return pb.GetStatusResponse(
            version=dependencies.version,
            uptime_s=max(0.0, now - dependencies.started_at),
            is_ready=not reason,
            not_ready_reason=reason,
            problems=dependencies.problems(),
            slots=pb.Slots(**slots),
            endpoints_by_health=healths,
            running=dispatcher.view.running_requests,
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
            bounds=map(_bound_message, dispatcher.view.bounds),
            pools=map(_pool_message, pool_counts(dispatcher.view)),
            idle_note=queue.idle_note,
            outcomes=dependencies.outcomes(),
            fleet_version=dispatcher.fleet.membership().version,
            envoys=[pb.GetStatusResponse.Envoy(**asdict(each)) for each in dependencies.envoys()],
            processes=_processes_message(dependencies.processes),
        )


def _bound_message(bound: Bound) -> pb.GetStatusResponse.Bound:
    return pb.GetStatusResponse.Bound(
        kind=bound.kind.value,
        name=bound.name,
        running=bound.running,
        max_running=bound.limits.running,
        queued=bound.queued,
        max_queued=bound.limits.queued,
        queue_timeout_s=bound.limits.queue_timeout_s,
        is_lifo=bound.limits.is_last_come,
    )


def _pool_message(pool: PoolCounts) -> pb.GetStatusResponse.Pool:
    return pb.GetStatusResponse.Pool(**(asdict(pool) | {"slots": pb.Slots(**asdict(pool.slots))}))


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
        members=[pb.GetStatusResponse.Process(**asdict(each)) for each in found.members],
        last_takeover=None if last is None else pb.GetStatusResponse.Takeover(**asdict(last)),
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
        members=[pb.GetStatusResponse.Member(**asdict(each)) for each in found.members],
    )
