"""When a machine is woken, and when it is put to sleep.

    awake      idle for `after_idle_s`                  -> going off, by the sleep command
    going off  no scrape is answered any more           -> off
               the command failed, or scrapes are still
               answered `STILL_AWAKE_S` after it        -> awake, and tried again later
    off        a request wants it                       -> waking, by packets at intervals
    waking     it serves                                -> awake
               no scrape was answered for `timeout_s`   -> off, and tried again later

A machine that answers no scrape is off, also if somebody else switched it off; unless it shows that
it is on, and no server comes within `timeout_s`: see `is_watched`. Pure: time is an argument, and
the caller does what `step` returns.
"""

from enum import Enum
from math import inf
from typing import Final, NamedTuple

from extproc.core.fleet.endpoint import WakeOptions
from extproc.core.placement.machine import Power
from extproc.core.scaling.runs import Tries

PACKET_S: Final = 3.0
"""The interval of packets: one that comes while the machine is still going off is lost."""
STILL_AWAKE_S: Final = 60.0
LEAST_DELAY_S: Final = 60.0
MAX_DELAY_S: Final = 3600.0
"""After failures, the next try comes a minute later, then 2, 4 up to 60."""


class Action(Enum):
    """What the caller has to do, or what has come about."""

    WAKE = "wake"  # send the first packet
    SEND = "send"  # send another one
    WOKEN = "woken"
    LOST = "lost"  # it did not wake
    SLEEP = "sleep"  # run the sleep command; nothing may be picked there from now on
    ASLEEP = "asleep"
    STAYED = "stayed"  # it did not go to sleep
    RETURNED = "returned"  # it was off, and is awake without having been woken


class Seen(NamedTuple):
    """What is known of a machine: whether one of its endpoints serves or answers at all, whether
    requests want it, and whether it may not sleep now. `used_at` is when its last request began."""

    is_serving: bool
    is_answering: bool
    is_wanted: bool = False
    is_busy: bool = False
    used_at: float = -inf


class MachinePower:
    """One machine. Every call is O(1)."""

    def __init__(self) -> None:
        self.state = Power.AWAKE
        self.began_at = 0.0
        """When its state began; while it goes off, when the command ended, infinite before."""
        self.last_wake_s: float | None = None
        """What it took the last time from the first packet until it served."""
        self.packets = 0
        """How many were sent for this wake."""
        self._is_put_to_sleep = False
        """Whether it is off because the sleep command ran."""
        self._idle_since: float | None = None
        self._next_packet_at = 0.0
        self._wakes = Tries(LEAST_DELAY_S, MAX_DELAY_S)
        self._sleeps = Tries(LEAST_DELAY_S, MAX_DELAY_S)

    def may_wake(self, now: float) -> bool:
        """Whether it is off, and not only just failed to wake."""
        return self.state is Power.OFF and now >= self._wakes.next_at

    @property
    def failed_wakes(self) -> int:
        """How often in a row it did not wake."""
        return self._wakes.failures

    @property
    def is_watched(self) -> bool:
        """Whether a server that does not answer should: the machine was not put to sleep, and it
        is neither going off nor waking."""
        is_settled = self.state is Power.AWAKE or self.state is Power.OFF
        return is_settled and not self._is_put_to_sleep

    def retry(self) -> None:
        """What failed may be tried again now: its options have changed, or it was on meanwhile."""
        self._wakes.succeeded()
        self._sleeps.succeeded()

    def ready_at(self) -> float | None:
        """While it wakes: when it serves if that takes as long as the last time."""
        return None if self.last_wake_s is None else self.began_at + self.last_wake_s

    def step(self, seen: Seen, options: WakeOptions, now: float) -> Action | None:
        """Decide once; None if nothing is to be done."""
        match self.state:
            case Power.AWAKE:
                return self._while_awake(seen, options, now)
            case Power.GOING_OFF:
                if not seen.is_answering:
                    self._sleeps.succeeded()
                    self._become(Power.OFF, now)
                    self._is_put_to_sleep = True
                    return Action.ASLEEP
                is_over = now - self.began_at >= STILL_AWAKE_S
                return self._stay(now) if is_over else None
            case Power.OFF:
                if seen.is_answering:
                    self._become(Power.AWAKE, now)
                    self._wakes.succeeded()
                    return Action.RETURNED
                return self._wake(now) if seen.is_wanted and self.may_wake(now) else None
            case _:
                return self._while_waking(seen, options, now)

    def command_ended(self, now: float, *, is_done: bool) -> Action | None:
        """The sleep command has ended; it failed unless `is_done`. A machine that is off by then is
        asleep, whatever the command says: its connection may have broken."""
        if self.state is not Power.GOING_OFF:
            return None
        if not is_done:
            return self._stay(now)
        self.began_at = now
        return None

    def _while_awake(self, seen: Seen, options: WakeOptions, now: float) -> Action | None:
        if not seen.is_answering:
            self._become(Power.OFF, now)
            return self._wake(now) if seen.is_wanted and self.may_wake(now) else None
        if seen.is_busy or not seen.is_serving or self._idle_since is None:
            self._idle_since = now
        idle_since = max(self._idle_since, seen.used_at)
        is_due = now - idle_since >= options.after_idle_s and now >= self._sleeps.next_at
        if seen.is_busy or not (options.sleep_command and is_due):
            return None
        self._become(Power.GOING_OFF, now)
        self.began_at = inf
        return Action.SLEEP

    def _while_waking(self, seen: Seen, options: WakeOptions, now: float) -> Action | None:
        if seen.is_serving:
            self.last_wake_s = now - self.began_at
            self._wakes.succeeded()
            self._become(Power.AWAKE, now)
            return Action.WOKEN
        if seen.is_answering:
            return None  # it loads its model
        if now - self.began_at >= options.timeout_s:
            self._wakes.failed(now)
            self._become(Power.OFF, now)
            return Action.LOST
        if now < self._next_packet_at:
            return None
        self._sent(now)
        return Action.SEND

    def _wake(self, now: float) -> Action:
        self._become(Power.WAKING, now)
        self.packets = 0
        self._sent(now)
        return Action.WAKE

    def _sent(self, now: float) -> None:
        self.packets += 1
        self._next_packet_at = now + PACKET_S

    def _stay(self, now: float) -> Action:
        self._sleeps.failed(now)
        self._become(Power.AWAKE, now)
        return Action.STAYED

    def _become(self, state: Power, now: float) -> None:
        self.state, self.began_at = state, now
        self._idle_since = now if state is Power.AWAKE else None
        self._is_put_to_sleep = False
