"""The stages of an exchange, and their public names."""

from enum import Enum
from typing import Final

from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeState


class Stage(Enum):
    NEW = "new"
    READING = "reading"
    ANSWERED = "answered"
    PASSING = "passing"
    QUEUED = "queued"
    LEASED = "leased"
    REJECTED = "refused"
    ENDED = "ended"


ROUTED: Final = (Stage.LEASED, Stage.PASSING)
"""The destination was sent to Envoy."""
REPLIED: Final = frozenset({Stage.REJECTED, Stage.ANSWERED})
"""Answered by the picker: Envoy sends nothing to a server."""
_STATES: Final = {
    Stage.NEW: ExchangeState.PASSING,
    Stage.READING: ExchangeState.READING,
    Stage.PASSING: ExchangeState.PASSING,
    Stage.QUEUED: ExchangeState.QUEUED,
    Stage.REJECTED: ExchangeState.OVER,
    Stage.ANSWERED: ExchangeState.OVER,
    Stage.ENDED: ExchangeState.OVER,
}
_VERDICTS: Final = {
    Stage.NEW: Outcome.PASSED,
    Stage.PASSING: Outcome.PASSED,
    Stage.ANSWERED: Outcome.PASSED,
    Stage.QUEUED: Outcome.WITHDRAWN,
    Stage.READING: Outcome.WITHDRAWN,
    Stage.REJECTED: Outcome.REJECTED,
}


def state_at(stage: Stage, *, is_answered: bool) -> ExchangeState:
    """The public state at this stage; `is_answered` says whether response headers arrived."""
    if stage is Stage.LEASED:
        return ExchangeState.RESPONDING if is_answered else ExchangeState.RUNNING
    return _STATES[stage]


def outcome_at(stage: Stage, *, is_cut: bool, is_unsent: bool) -> Outcome:
    """How an exchange ended that had come so far; `is_unsent` says that its destination never
    left this process. Raises `KeyError` for one that ended before."""
    if stage is Stage.LEASED:
        if is_unsent:
            return Outcome.WITHDRAWN
        return Outcome.BROKEN if is_cut else Outcome.SERVED
    return _VERDICTS[stage]
