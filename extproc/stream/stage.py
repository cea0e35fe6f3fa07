"""How far an exchange has come, and what that is called elsewhere."""

from __future__ import annotations

from enum import Enum
from typing import Final

from extproc.core.exchange_record import Verdict
from extproc.core.scheduler.exchange_registry import ExchangeState


class Stage(Enum):
    NEW = "new"
    READING = "reading"
    ANSWERED = "answered"
    PASSING = "passing"
    WAITING = "waiting"
    LEASED = "leased"
    REFUSED = "refused"
    ENDED = "ended"


TOLD: Final = (Stage.LEASED, Stage.PASSING)
"""Envoy was told where it goes."""
SPOKEN: Final = frozenset({Stage.REFUSED, Stage.ANSWERED})
"""Answered by us: Envoy sends nothing on."""
_STATES: Final = {
    Stage.NEW: ExchangeState.PASSING,
    Stage.READING: ExchangeState.READING,
    Stage.PASSING: ExchangeState.PASSING,
    Stage.WAITING: ExchangeState.WAITING,
    Stage.REFUSED: ExchangeState.OVER,
    Stage.ANSWERED: ExchangeState.OVER,
    Stage.ENDED: ExchangeState.OVER,
}
_VERDICTS: Final = {
    Stage.NEW: Verdict.PASSED,
    Stage.PASSING: Verdict.PASSED,
    Stage.ANSWERED: Verdict.PASSED,
    Stage.WAITING: Verdict.WITHDRAWN,
    Stage.READING: Verdict.WITHDRAWN,
    Stage.REFUSED: Verdict.REJECTED,
}


def state_at(stage: Stage, *, is_answered: bool) -> ExchangeState:
    """What others see of an exchange at this stage; `is_answered` tells of response headers."""
    if stage is Stage.LEASED:
        return ExchangeState.ANSWERING if is_answered else ExchangeState.RUNNING
    return _STATES[stage]


def verdict_at(stage: Stage, *, is_cut: bool, is_unsent: bool) -> Verdict:
    """How an exchange ended that had come so far; `is_unsent` tells that its destination never
    left this process. Raises `KeyError` for one that ended before."""
    if stage is Stage.LEASED:
        if is_unsent:
            return Verdict.WITHDRAWN
        return Verdict.BROKEN if is_cut else Verdict.SERVED
    return _VERDICTS[stage]
