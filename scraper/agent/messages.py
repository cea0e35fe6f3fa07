"""Observations as messages of `agent.proto`. Pure."""

from dataclasses import asdict

from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.runners.probe import ScrapePriority

STATUSES = {
    ScrapeStatus.READY: pb.Observation.STATUS_READY,
    ScrapeStatus.LOADING: pb.Observation.STATUS_LOADING,
    ScrapeStatus.ASLEEP: pb.Observation.STATUS_ASLEEP,
    ScrapeStatus.UNREACHABLE: pb.Observation.STATUS_UNREACHABLE,
    ScrapeStatus.FAILED: pb.Observation.STATUS_FAILED,
}
SCRAPE_PRIORITIES = {
    pb.PickerMessage.SCRAPE_PRIORITY_IDLE: ScrapePriority.IDLE,
    pb.PickerMessage.SCRAPE_PRIORITY_STEADY: ScrapePriority.STEADY,
    pb.PickerMessage.SCRAPE_PRIORITY_HIGH: ScrapePriority.HIGH,
}


def observation_message(observation: Observation, now: float) -> pb.Observation:
    """An observation with its ages at `now`, on the same clock."""
    message = pb.Observation(
        began_ago_s=max(0.0, now - observation.began_at),
        answered_ago_s=max(0.0, now - observation.answered_at),
        status=STATUSES[observation.status],
        slots=observation.slots,
        busy_slots=observation.busy_slots,
        models=[_model(model) for model in observation.models],
        issues=[pb.Observation.Issue(**asdict(issue)) for issue in observation.issues],
        instance=observation.instance,
        busy=[
            pb.Observation.Slot(**(asdict(slot) | {"task_id": max(0, slot.task_id)}))
            for slot in observation.slot_readings
        ],
        ended=[pb.Observation.EndedTask(**asdict(task)) for task in observation.ended_tasks],
        context_tokens=observation.context_tokens,
        shared_tokens=observation.shared_tokens,
        awaits_adapters=observation.awaits_adapters,
        runner=observation.runner if observation.apis is not None else "",
        apis=sorted(observation.apis or ()),
        is_full=observation.is_full,
    )
    if observation.adapters is not None:
        message.adapters.SetInParent()
        for adapter in observation.adapters:
            message.adapters.adapters.add(**asdict(adapter))
    return message


def _model(model: ModelReading) -> pb.Observation.Model:
    return pb.Observation.Model(
        name=model.name,
        aliases=model.aliases,
        is_loaded=model.is_loaded,
        is_loading=model.is_loading,
        may_be_loading=model.may_be_loading,
        slots=model.slots,
        busy_slots=model.busy_slots,
        state="" if model.reported is None else model.reported.value,
        shared_tokens=model.shared_tokens,
    )
