"""Observations as messages of `agent.proto`. Pure."""

from __future__ import annotations

from extproc.core.observation import (
    AdapterReading,
    Issue,
    ModelReading,
    Observation,
    ScrapeStatus,
    SlotReading,
)
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from scraper.schedule import ScrapePriority

SIGHTS = {
    ScrapeStatus.READY: pb.Look.SIGHT_READY,
    ScrapeStatus.LOADING: pb.Look.SIGHT_LOADING,
    ScrapeStatus.ASLEEP: pb.Look.SIGHT_ASLEEP,
    ScrapeStatus.UNREACHABLE: pb.Look.SIGHT_UNREACHABLE,
    ScrapeStatus.FAILED: pb.Look.SIGHT_FAILED,
}
ATTENTIONS = {
    pb.PickerMessage.ATTENTION_IDLE: ScrapePriority.IDLE,
    pb.PickerMessage.ATTENTION_STEADY: ScrapePriority.STEADY,
    pb.PickerMessage.ATTENTION_RESTLESS: ScrapePriority.HIGH,
}


def observation_message(observation: Observation, now: float) -> pb.Look:
    """An observation with its ages at `now`, on the same clock."""
    look = pb.Look(
        began_ago_s=max(0.0, now - observation.began_at),
        answered_ago_s=max(0.0, now - observation.answered_at),
        sight=SIGHTS[observation.status],
        slots=observation.slots,
        busy_slots=observation.busy_slots,
        models=[_model(model) for model in observation.models],
        issues=[_issue(issue) for issue in observation.issues],
        instance=observation.instance,
        busy=[_slot(slot) for slot in observation.slot_readings],
        context_tokens=observation.context_tokens,
        awaits_adapters=observation.awaits_adapters,
    )
    if observation.adapters is not None:
        look.adapters.SetInParent()
        look.adapters.adapters.extend(map(_adapter, observation.adapters))
    return look


def _model(model: ModelReading) -> pb.Look.Model:
    return pb.Look.Model(
        name=model.name,
        aliases=model.aliases,
        is_loaded=model.is_loaded,
        is_loading=model.is_loading,
        slots=model.slots,
        busy_slots=model.busy_slots,
    )


def _issue(issue: Issue) -> pb.Look.Issue:
    return pb.Look.Issue(code=issue.code, message=issue.message, remedy=issue.remedy)


def _slot(slot: SlotReading) -> pb.Look.Slot:
    return pb.Look.Slot(
        task_id=max(0, slot.task_id),
        prompt_tokens=slot.prompt_tokens,
        cached_tokens=slot.cached_tokens,
        processed_tokens=slot.processed_tokens,
        decoded_tokens=slot.decoded_tokens,
        remaining_tokens=slot.remaining_tokens,
        model=slot.model,
    )


def _adapter(adapter: AdapterReading) -> pb.Look.Adapter:
    return pb.Look.Adapter(id=adapter.id, name=adapter.name)
