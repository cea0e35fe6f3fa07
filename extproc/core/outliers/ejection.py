"""The ejection of one endpoint, and its trial requests until one succeeds.

    HEALTHY   --eject--> EJECTED --backoff passed--> TRIAL_DUE --a request is sent--> TRIAL
    TRIAL     --it succeeds, or runs much longer than the failures--> HEALTHY, on probation
              --eject: it failed-----------------------------> EJECTED, for longer
              --it shows nothing (4xx, its client left)------> TRIAL_DUE
    any       --readmit: no other endpoint is left-----------> HEALTHY, on probation

On probation one failure ejects; it ends after some complete responses. Synchronous and pure; `now`
is an argument everywhere.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from extproc.core.outliers.failure_evidence import ENDURES_FACTOR, Failure, Fault, RequestKind

MIN_TRIAL_S: Final = 2.0
"""A trial that runs this long, and much longer than the failures took, is passed: a long response
must not keep the other slots out of use."""
MAX_LEVEL: Final = 30


class EjectionState(Enum):
    HEALTHY = "healthy"
    EJECTED = "ejected"
    TRIAL_DUE = "trial-due"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an endpoint is ejected: doubled with each ejection in a row up to `max_s`; each
    `max_s` of good health reverts one doubling."""

    base_s: float = 2.0
    max_s: float = 60.0

    def seconds(self, level: int) -> float:
        """The backoff of ejection number `level` in a row, from 0."""
        return min(self.max_s, self.base_s * 2.0 ** min(level, MAX_LEVEL))


class EjectionError(Exception):
    """An illegal transition of an ejection: a bug of the caller."""


class Ejection:
    """`failures` in a row eject, one on probation; as many complete responses end that."""

    def __init__(self, backoff: Backoff, failures_to_eject: int) -> None:
        self._backoff = backoff
        self._failures_to_eject = failures_to_eject
        self._level = 0
        self._longest_failure_s = 0.0
        self._probation = 0
        self.state = EjectionState.HEALTHY
        self.since = 0.0
        """When its state began; requests that were sent earlier no longer count."""
        self.due_at: float | None = None
        """When `advance` must be called, or None."""
        self.cause: Fault | None = None
        """The last of the failures that ejected it."""
        self.failures = 0
        """The number of failures that ejected it."""
        self.models: frozenset[str | None] = frozenset()
        """The models of the failed requests."""
        self.trial_id: int | None = None
        """The lease of the trial request."""
        self.trial_kind: RequestKind | None = None
        """Its kind."""

    @property
    def is_out(self) -> bool:
        """Whether no request may be sent there."""
        return self.state is EjectionState.EJECTED or self.state is EjectionState.TRIAL

    @property
    def threshold(self) -> int:
        """How many failures in a row eject it now."""
        return 1 if self._probation else self._failures_to_eject

    def eject(self, failures: list[Failure], now: float) -> None:
        """Eject the endpoint because of these failures, at least one."""
        if self.state is EjectionState.HEALTHY and self._level:
            healthy_s = now - self.since
            self._level = max(0, self._level - int(healthy_s / self._backoff.max_s))
        self.cause = failures[-1].fault
        self.failures = len(failures)
        self.models = frozenset(failure.kind.model for failure in failures) - {None}
        self._longest_failure_s = max(failure.took_s for failure in failures)
        self._enter(EjectionState.EJECTED, now, now + self._backoff.seconds(self._level))
        self._level += 1

    def advance(self, now: float) -> bool:
        """Make the transition that is due; returns whether anything changed."""
        if self.due_at is None or self.due_at > now:
            return False
        if self.state is EjectionState.EJECTED:
            self.make_trial_due(now)
        else:
            self.readmit(now)
        return True

    def make_trial_due(self, now: float) -> None:
        """The next request is a trial. Raises `EjectionError` if the endpoint is healthy."""
        if self.state is EjectionState.HEALTHY:
            raise EjectionError("a healthy endpoint needs no trial")
        self._enter(EjectionState.TRIAL_DUE, now, None)

    def begin_trial(self, lease_id: int, kind: RequestKind, now: float) -> None:
        """A trial request is sent. Raises `EjectionError` unless a trial is due."""
        if self.state is not EjectionState.TRIAL_DUE:
            raise EjectionError(f"no trial is due: {self.state.value}")
        lasts_s = max(MIN_TRIAL_S, ENDURES_FACTOR * self._longest_failure_s)
        self._enter(EjectionState.TRIAL, now, now + lasts_s)
        self.trial_id, self.trial_kind = lease_id, kind

    def readmit(self, now: float) -> None:
        """Allow all slots again, on probation, which begins with the trial."""
        self._probation = self._failures_to_eject
        began_at = self.since if self.state is EjectionState.TRIAL else now
        self._enter(EjectionState.HEALTHY, began_at, None)

    def served(self) -> None:
        """A complete response came while it was healthy."""
        self._probation = max(0, self._probation - 1)

    def _enter(self, state: EjectionState, now: float, due_at: float | None) -> None:
        self.state = state
        self.since = now
        self.due_at = due_at
        self.trial_id = self.trial_kind = None
