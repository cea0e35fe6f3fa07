"""The core's state as the admin API's messages."""

from typing import Final

from extproc.admin.endpoint_json import endpoint_json
from extproc.core.exchange_registry import ExchangeSnapshot, ExchangeState
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import Health
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.forecast import QueuePosition
from extproc.pb.coxswain.v1 import admin_pb2 as pb

HEALTH: Final = {
    Health.LOADING: pb.HEALTH_LOADING,
    Health.READY: pb.HEALTH_READY,
    Health.DEGRADED: pb.HEALTH_DEGRADED,
    Health.DOWN: pb.HEALTH_DOWN,
    Health.ASLEEP: pb.HEALTH_ASLEEP,
    Health.OFF: pb.HEALTH_OFF,
}
INTENT: Final = {
    Intent.ACTIVE: pb.INTENT_ACTIVE,
    Intent.DRAINING: pb.INTENT_DRAINING,
    Intent.DISABLED: pb.INTENT_DISABLED,
}
STATE: Final = {
    ExchangeState.READING: pb.REQUEST_STATE_READING,
    ExchangeState.QUEUED: pb.REQUEST_STATE_QUEUED,
    ExchangeState.RUNNING: pb.REQUEST_STATE_RUNNING,
    ExchangeState.RESPONDING: pb.REQUEST_STATE_RESPONDING,
    ExchangeState.PASSING: pb.REQUEST_STATE_PASSING,
    ExchangeState.OVER: pb.REQUEST_STATE_UNSPECIFIED,
}


def endpoint_message(dispatcher: Dispatcher, endpoint: Endpoint, now: float) -> pb.Endpoint:
    """One endpoint as a message."""
    found = endpoint_json(dispatcher, endpoint, now)
    found |= {"health": HEALTH[endpoint.health], "intent": INTENT[endpoint.intent]}
    return pb.Endpoint(**found)


def request_message(
    snapshot: ExchangeSnapshot,
    queue_position: QueuePosition | None = None,
    wait_reason: str = "",
    note: str = "",
) -> pb.Request:
    """One exchange; the others are for queued ones."""
    return pb.Request(
        exchange_id=snapshot.exchange_id,
        request_id=snapshot.request_id,
        state=STATE[snapshot.state],
        endpoint=str(snapshot.endpoint) if snapshot.endpoint is not None else "",
        endpoint_name=snapshot.endpoint_name,
        model=snapshot.model,
        criticality=snapshot.criticality,
        objective=snapshot.objective,
        age_s=max(0.0, snapshot.age_s),
        waited_s=max(0.0, snapshot.waited_s),
        queue_position=0 if queue_position is None else queue_position.position,
        queued=0 if queue_position is None else queue_position.queued,
        expected_s=None if queue_position is None else queue_position.expected_s,
        weight_slots=snapshot.weight_slots,
        wait_reason=wait_reason,
        note=note,
        client=snapshot.client,
        pool=snapshot.pool,
    )
