"""What Coxswain has learned of one endpoint, as plain values."""

from typing import Any

from extproc.core.address import Address
from extproc.core.scheduler.dispatcher import Dispatcher


def learned_json(dispatcher: Dispatcher, address: Address, now: float) -> dict[str, Any]:
    """The latency model of a member of the fleet, and its ejections since the start by cause.

    `prompt_tokens_per_s` is for uncached tokens, `tokens_per_s` for one request while the slots are
    as busy as now; `samples` is a decayed number: with few, the fleet's typical endpoint counts.
    """
    estimate, samples = dispatcher.view.latency_at(address, now)
    slots = dispatcher.view.slots_at(address)
    busy = slots.leased_slots + slots.foreign_slots
    return {
        "endpoint": str(address),
        "samples": round(samples, 1),
        "fixed_s": round(estimate.fixed_s, 3),
        "prompt_tokens_per_s": _rate(estimate.prefill_s),
        "tokens_per_s": _rate(estimate.token_s(max(1, busy))),
        "answer_tokens": round(estimate.answer_tokens, 1),
        "slot_s": round(estimate.slot_s, 3),
        "ejections": {
            fault.value: count for fault, count in dispatcher.view.ejection_totals(address).items()
        },
    }


def _rate(seconds: float) -> float | None:
    """How many in a second; None for no time at all."""
    return round(1 / seconds, 1) if seconds > 0 else None
