"""Notices processes that give no sign of life, and kills them: two cores never decide at once."""

import logging
import signal
from collections import deque
from collections.abc import Callable
from typing import Final

from extproc.processes.member import Member, Role
from extproc.processes.process_table import ProcessTable

CHECK_S: Final = 0.1
SILENT_S: Final = 0.4
"""After so long without a sign of life a front is taken for one that stands still; four are due in
this time."""
STILL_S: Final = 1.0
"""A front is killed after so long, and so is a core with a spare: nothing is lost by it."""
HUNG_S: Final = 2.0
"""Any other process is killed after so long."""
SOON_KILLED: Final = 10
MINUTE_S: Final = 60.0
"""After this number of processes was killed within a minute all have `HUNG_S`: this may be a slow
machine."""
TAKEOVER_S: Final = 10.0
"""In a takeover a core and its fronts are killed after so long: it takes a second to place 10,000
queued requests, or to hand over a gigabyte of bodies."""
START_S: Final = 60.0
"""One that starts is killed after so long."""
PAUSED_S: Final = 0.25
"""If a check comes so much too late, it was this process that stood still."""

log = logging.getLogger("coxswain.processes")


class Liveness:
    """`check` is to be called every `CHECK_S`. Times are seconds on the clock of `alive_at`."""

    def __init__(self, table: ProcessTable, changed: Callable[[Member], None], now: float) -> None:
        """`changed` is called with a front that stands still, or does so no more."""
        self._table = table
        self._changed = changed
        self._checked_at = now
        self._killed_at: deque[float] = deque(maxlen=SOON_KILLED)

    def heard(self, member: Member, now: float) -> None:
        """A member gives a sign of life."""
        member.alive_at = now
        if member.is_silent:
            member.is_silent = False
            self._changed(member)

    def check(self, now: float) -> None:
        """Kill those that have been silent for too long."""
        was_paused = now - self._checked_at > CHECK_S + PAUSED_S
        self._checked_at = now
        for member in self._table:
            if was_paused:
                self.heard(member, now)
            silent_s = now - member.alive_at
            limit_s = self._limit_s(member, now)
            if silent_s > limit_s:
                log.error("%s has not answered for %g s: killed", member.name, limit_s)
                member.alive_at = now
                member.is_hung = True
                self._killed_at.append(now)
                member.send_signal(signal.SIGKILL)
            elif silent_s > SILENT_S and member.role is Role.FRONT and not member.is_silent:
                member.is_silent = True
                self._changed(member)

    def _limit_s(self, member: Member, now: float) -> float:
        if not member.has_started:
            return START_S
        takes_over = member is self._table.core and not member.is_ready
        hands_over = member.alive_at < member.linked_at + 2 * CHECK_S  # the order is on its way
        if takes_over or hands_over:
            return TAKEOVER_S
        if member.is_hung or self._is_slow_machine(now):
            return HUNG_S
        if member.role is Role.FRONT:
            return STILL_S
        leads = member is self._table.core
        return STILL_S if leads and self._table.started_spare() is not None else HUNG_S

    def _is_slow_machine(self, now: float) -> bool:
        return len(self._killed_at) == SOON_KILLED and now - self._killed_at[0] < MINUTE_S
