"""Kills processes that give no sign of life: two cores never decide at the same time."""

import logging
import signal
from collections.abc import Iterable
from typing import Final

from extproc.app.processes.member import Member

CHECK_S: Final = 0.25
HUNG_S: Final = 2.0
"""A process that is silent for so long is killed; eight signs of life are due in this time."""
START_S: Final = 60.0
"""The same for one that starts."""
PAUSED_S: Final = 0.75
"""If a check comes so much too late, it was this process that stood still."""

log = logging.getLogger("coxswain.processes")


class Liveness:
    """`check` is to be called every `CHECK_S`. Times are seconds on the clock of `alive_at`."""

    def __init__(self, now: float) -> None:
        self._checked_at = now

    def check(self, members: Iterable[Member], now: float) -> None:
        """Kill those that have been silent for too long."""
        was_paused = now - self._checked_at > CHECK_S + PAUSED_S
        self._checked_at = now
        for member in members:
            if was_paused:
                member.alive_at = now
            limit_s = HUNG_S if member.has_started else START_S
            if now - member.alive_at > limit_s:
                log.error("%s has not answered for %g s: killed", member.name, limit_s)
                member.alive_at = now
                member.is_hung = True
                member.send_signal(signal.SIGKILL)
