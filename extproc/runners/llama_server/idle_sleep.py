"""Decides whether a request for /slots would wake a server, or keep it from falling asleep.

A llama-server started with `--sleep-idle-seconds` unloads its model after that long without
a task. GET /slots is such a task: it restarts the idle timer and wakes a sleeper. /health,
/props and /v1/models are not. Only `is_sleeping: true` shows that a server can sleep
(`docs/decisions/0010-letting-servers-sleep.md`), so:

    behaviour     | /slots is requested
    --------------|------------------------------------------------------------------------
    stays awake   | at every scrape
    sleeps        | if it is awake and has work, or has woken within `WAKE_LINGER_S`
    unknown       | as "sleeps", also for `linger_s` after its work ended, and then after pauses
                  | that double; after a pause of `trial_s` without falling asleep it counts as
                  | "stays awake", and if it is seen asleep, as "sleeps"

A server has work if it has a lease of ours (by the scrape priority) or had a busy slot at the last
scrape. The behaviour belongs to the process: a new process starts as unknown.
"""

from enum import Enum

from extproc.runners.probe import ScrapePriority, SleepTrial

MIN_SLEEP_S = 1.0
"""The shortest `--sleep-idle-seconds` that llama-server accepts, in whole seconds."""
WAKE_LINGER_S = 1.0
"""What woke a server takes a slot later: its prompt becomes tokens first, and llama-server answers
/slots before tasks that wait."""


class SleepBehaviour(Enum):
    UNKNOWN = "unknown"
    SLEEPS = "sleeps"
    STAYS_AWAKE = "stays awake"


_DECLARED = {
    None: SleepBehaviour.UNKNOWN,
    True: SleepBehaviour.SLEEPS,
    False: SleepBehaviour.STAYS_AWAKE,
}


class IdleSleepTracker:
    """Tracks the sleep of one endpoint. Pure: `now` is an argument."""

    def __init__(self, trial: SleepTrial, declared: bool | None) -> None:
        """`declared` says whether the server may sleep, by the settings; None is unknown."""
        self._trial = trial
        self._declared = declared
        self.start_process()

    def start_process(self) -> None:
        """Forget the previous process, because another one serves the address now."""
        self.behaviour = _DECLARED[self._declared]
        self.is_asleep = False
        self._is_at_work = True  # nothing is known, so the first scrape must request /slots
        self._has_woken = False
        self._seen_awake_at: float | None = None
        self._worked_at: float | None = None
        self._asked_at: float | None = None
        self._pause_s = max(self._trial.linger_s, 1.0)

    def on_props(self, is_asleep: bool | None) -> None:
        """Apply a response to /props; None is a build without sleep."""
        if is_asleep is None:
            self.behaviour = SleepBehaviour.STAYS_AWAKE
        elif is_asleep:
            self.behaviour = SleepBehaviour.SLEEPS
        elif self.is_asleep:
            self._is_at_work = self._has_woken = True  # a request woke it: count its slots
            self._seen_awake_at = None
        self.is_asleep = is_asleep is True

    def on_slots(self, asked_at: float, busy_slots: int) -> None:
        """Apply a response to a request of /slots at `asked_at`, which restarted the idle timer."""
        self._asked_at = asked_at
        if self._has_woken:
            if self._seen_awake_at is None:
                self._seen_awake_at = asked_at
            self._has_woken = not busy_slots and asked_at - self._seen_awake_at < WAKE_LINGER_S
        self._is_at_work = busy_slots > 0 or self._has_woken
        if self._is_at_work or self._worked_at is None:
            self._worked_at = asked_at

    def needs_props(self, now: float, priority: ScrapePriority) -> bool:
        """Whether /props must show that the server is awake before a request for /slots."""
        if self.behaviour is SleepBehaviour.STAYS_AWAKE:
            return False
        if self.behaviour is SleepBehaviour.UNKNOWN and priority is ScrapePriority.STEADY:
            return False  # our own requests keep it awake, or are waking it already
        if priority is ScrapePriority.IDLE and not self._is_at_work:
            return True
        # Right after a task it cannot have fallen asleep yet; the margin is for our own delays.
        return self._asked_at is None or now - self._asked_at >= 0.8 * MIN_SLEEP_S

    def may_request_slots(self, now: float, priority: ScrapePriority) -> bool:
        """Whether to request /slots now. Call it once per scrape, after /props if that was due."""
        if self.behaviour is SleepBehaviour.STAYS_AWAKE:
            return True
        if self.is_asleep:
            return False
        if priority is not ScrapePriority.IDLE:
            self._worked_at = now
            return True
        if self._is_at_work:
            return True
        return self.behaviour is SleepBehaviour.UNKNOWN and self._trial_allows(now)

    def _trial_allows(self, now: float) -> bool:
        if self._worked_at is None or now - self._worked_at < self._trial.linger_s:
            return True
        if self._asked_at is not None and now - self._asked_at < self._pause_s:
            return False
        if self._pause_s >= self._trial.trial_s:
            self.behaviour = SleepBehaviour.STAYS_AWAKE
        self._pause_s = min(2 * self._pause_s, self._trial.trial_s)
        return True
