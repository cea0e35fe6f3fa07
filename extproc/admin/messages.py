"""The core's state as the admin API's messages."""

from dataclasses import asdict
from typing import Final

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
    message = pb.Endpoint(
        address=str(endpoint.address),
        name=endpoint.spec.name,
        hostname=endpoint.spec.hostname,
        health=HEALTH[endpoint.health],
        intent=INTENT[endpoint.intent],
        slots=pb.Slots(**asdict(dispatcher.view.slot_counts(endpoint))),
        models=[
            pb.Model(name=model.name, aliases=model.aliases, is_loaded=model.is_loaded)
            for model in endpoint.models
        ],
        issues=[pb.Issue(**asdict(issue)) for issue in endpoint.issues],
        sources=dispatcher.fleet.sources_of(endpoint.address),
        is_fresh=endpoint.is_fresh,
        is_known_to_envoy=endpoint.is_routable,
        is_removed=endpoint.is_removed,
        is_pickable=endpoint.is_pickable,
        leases=len(dispatcher.view.slots_at(endpoint.address).leases),
        labels=dict(endpoint.spec.labels),
        tier=endpoint.spec.tier,
        pool=endpoint.spec.pool,
        runner=endpoint.runner,
        is_foreign_known=dispatcher.view.slots_at(endpoint.address).reports_busy_slots,
        is_waking=endpoint.is_waking,
        is_going_off=endpoint.is_going_off,
    )
    tokens = dispatcher.view.token_counts(endpoint)
    if tokens is not None:
        message.tokens.CopyFrom(pb.Tokens(**(asdict(tokens) | {"source": tokens.source.value})))
    if endpoint.observed_at is not None:
        message.observed_age_s = max(0.0, now - endpoint.observed_at)
    if endpoint.intent_since is not None:
        message.intent_age_s = max(0.0, now - endpoint.intent_since)
    return message


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
