"""May /slots be asked without waking a server, or keeping one awake that wants to sleep?

A llama-server started with `--sleep-idle-seconds` unloads its model after that long without
a task. GET /slots is such a task: it restarts the idle timer and wakes a sleeper. /health,
/props and /v1/models are not. Nothing but `is_sleeping: true` tells that a server can sleep
(`docs/decisions/0010-letting-servers-sleep.md`), so:

    nature        | /slots is asked
    --------------|------------------------------------------------------------------------
    stays awake   | at every look
    sleeps        | awake, and: somebody is at work there, or it has just woken
    unknown       | as "sleeps", also for `linger_s` after work ended, and then after pauses
                  | that double; a pause of `trial_s` without falling asleep settles that it
                  | stays awake, one look at it asleep that it sleeps

"Somebody" is a lease of ours (the ledger's attention) or a busy slot at the last look.
The nature belongs to the process: another one starts as unknown again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from scraper.schedule import ScrapePriority

MIN_SLEEP_S = 1.0
"""The shortest `--sleep-idle-seconds` that llama-server takes: it wants whole seconds above 0."""


class SleepBehaviour(Enum):
    UNKNOWN = "unknown"
    SLEEPS = "sleeps"
    STAYS_AWAKE = "stays awake"


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepTrial:
    """How an undeclared server is given the chance to fall asleep, in seconds."""

    linger_s: float = 30.0
    trial_s: float = 900.0

    def __post_init__(self) -> None:
        if not 0 <= self.linger_s <= self.trial_s:
            raise ValueError(
                f"0 <= linger_s <= trial_s must hold, not {self.linger_s}, {self.trial_s}"
            )


class IdleSleepTracker:
    """Tracks the sleep of one endpoint. Pure: `now` is an argument."""

    def __init__(self, trial: SleepTrial, declared: bool | None) -> None:
        """`declared` is the operator's word on whether the server may sleep; None is unknown."""
        self._trial = trial
        self._declared = declared
        self.start_process()

    @property
    def nature(self) -> SleepBehaviour:
        return self._nature

    @property
    def is_asleep(self) -> bool:
        return self._is_asleep

    def start_process(self) -> None:
        """Forget the previous process, because another one serves the address now."""
        if self._declared is None:
            self._nature = SleepBehaviour.UNKNOWN
        else:
            self._nature = SleepBehaviour.SLEEPS if self._declared else SleepBehaviour.STAYS_AWAKE
        self._is_asleep = False
        self._is_at_work = True  # nothing is known of it, so the first look must ask
        self._worked_at: float | None = None
        self._asked_at: float | None = None
        self._pause_s = max(self._trial.linger_s, 1.0)

    def props_told(self, is_asleep: bool | None) -> None:
        """/props answered; None is a build that knows no sleep."""
        if is_asleep is None:
            self._nature = SleepBehaviour.STAYS_AWAKE
        elif is_asleep:
            self._nature = SleepBehaviour.SLEEPS
        elif self._is_asleep:
            self._is_at_work = True  # somebody woke it: look who
        self._is_asleep = is_asleep is True

    def slots_told(self, asked_at: float, busy_slots: int) -> None:
        """/slots was asked at `asked_at` and answered, which restarted the server's idle timer."""
        self._asked_at = asked_at
        self._is_at_work = busy_slots > 0
        if self._is_at_work or self._worked_at is None:
            self._worked_at = asked_at

    def needs_props(self, now: float, attention: ScrapePriority) -> bool:
        """Whether /props must tell that the server is awake before /slots may be asked."""
        if self._nature is SleepBehaviour.STAYS_AWAKE:
            return False
        if self._nature is SleepBehaviour.UNKNOWN and attention is ScrapePriority.STEADY:
            return False  # our own requests keep it awake, or are waking it already
        if attention is ScrapePriority.IDLE and not self._is_at_work:
            return True
        # Right after a task it cannot have fallen asleep yet; the margin is for our own delays.
        return self._asked_at is None or now - self._asked_at >= 0.8 * MIN_SLEEP_S

    def may_ask_slots(self, now: float, attention: ScrapePriority) -> bool:
        """Whether /slots may be asked now. Call it once per look, after /props if that was due."""
        if self._nature is SleepBehaviour.STAYS_AWAKE:
            return True
        if self._is_asleep:
            return False
        if attention is not ScrapePriority.IDLE:
            self._worked_at = now
            return True
        if self._is_at_work:
            return True
        return self._nature is SleepBehaviour.UNKNOWN and self._trial_allows(now)

    def _trial_allows(self, now: float) -> bool:
        if self._worked_at is None or now - self._worked_at < self._trial.linger_s:
            return True
        if self._asked_at is not None and now - self._asked_at < self._pause_s:
            return False
        if self._pause_s >= self._trial.trial_s:
            self._nature = SleepBehaviour.STAYS_AWAKE
        self._pause_s = min(2 * self._pause_s, self._trial.trial_s)
        return True
