"""The processes of a supervisor: starts them, finds them by what they do, counts their restarts."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from extproc.processes.control import Message
from extproc.processes.member import Member, Role

RESTART_MIN_S: Final = 0.5
RESTART_MAX_S: Final = 10.0
FREE_RESTARTS: Final = 3
"""The number in a row that is started again at once."""
STEADY_S: Final = 10.0
"""A process that ends sooner than this is started again with a delay."""

log = logging.getLogger("coxswain.processes")


class ProcessTable:
    """Belongs to one event loop.

    `heard` gets what a process reports and `ended` each that is gone; `changed` is called when one
    was started, or could not be.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        heard: Callable[[Member, Message], None],
        ended: Callable[[Member], None],
        changed: Callable[[], None],
    ) -> None:
        """`command` starts a process of ours; its role follows."""
        self.core: Member | None = None
        """The core that leads."""
        self._command = command
        self._environment = environment
        self._heard = heard
        self._ended = ended
        self._changed = changed
        self._members: dict[str, Member] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._serials = dict.fromkeys(Role, 0)
        self._restarts = dict.fromkeys(Role, 0)
        self._short_lives = dict.fromkeys(Role, 0)

    def __iter__(self) -> Iterator[Member]:
        """All that run, also those that leave."""
        return iter(list(self._members.values()))

    def __contains__(self, member: Member) -> bool:
        return self._members.get(member.name) is member

    def fronts(self) -> list[Member]:
        """Those that do not leave."""
        return [each for each in self if each.role is Role.FRONT and not each.is_leaving]

    def ready_fronts(self) -> list[Member]:
        """Those to which a core has spoken."""
        return [each for each in self.fronts() if each.is_ready]

    def spares(self) -> list[Member]:
        """The cores that do not lead and do not leave."""
        return [
            each
            for each in self
            if each.role is Role.CORE and each is not self.core and not each.is_leaving
        ]

    def started_spare(self) -> Member | None:
        """One that could lead now."""
        return next((each for each in self.spares() if each.has_started), None)

    def ending_core(self) -> Member | None:
        """A core that led and was ended: it may still have its ports."""
        cores = (each for each in self if each.role is Role.CORE and each is not self.core)
        return next((each for each in cores if each.is_leaving and each.is_ready), None)

    def start_missing(self, role: Role, wanted: int) -> None:
        """Start as many as are missing to have this number of fronts, or of spares."""
        present = self.fronts() if role is Role.FRONT else self.spares()
        starting = [task.get_name() for task in self._starting].count(role.value)
        for _ in range(wanted - len(present) - starting):
            self._serials[role] += 1
            name = f"{role.value}-{self._serials[role]}"
            delay_s = _delay_s(self._short_lives[role])
            task = asyncio.create_task(self._start(role, name, delay_s), name=role.value)
            self._starting.add(task)
            task.add_done_callback(self._started)

    def stop_starting(self) -> None:
        """Start none of those any more that were to be started."""
        for task in self._starting:
            task.cancel()

    def count_end(self, member: Member, *, is_wanted: bool) -> None:
        """Log the end of a process, and count it as a restart unless it `is_wanted`."""
        if is_wanted:
            log.info("%s ended", member.name)
        else:
            self._restarts[member.role] += 1
            lived_s = time.monotonic() - member.since
            log.error("%s ended after %.0f s: %s", member.name, lived_s, _how(member))

    def describe(self) -> dict[str, object]:
        """For operators."""
        return {
            "restarts": {role.value: count for role, count in self._restarts.items()},
            "members": [each.describe(self._role_of(each)) for each in self],
        }

    async def _start(self, role: Role, name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        member = await Member.start(
            role, name, self._command, self._environment, self._heard, self._gone
        )
        if role is Role.FRONT:
            member.number = self._free_number()
        self._members[name] = member
        log.info("%s started as process %d", name, member.pid)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a process could not be started: %s", error)
            asyncio.get_running_loop().call_later(RESTART_MAX_S, self._changed)
        else:
            self._changed()

    def _free_number(self) -> int:
        """The lowest that no front has."""
        used = {each.number for each in self}
        return next(number for number in range(1, len(used) + 2) if number not in used)

    def _gone(self, member: Member) -> None:
        self._members.pop(member.name, None)
        is_short = time.monotonic() - member.since < STEADY_S
        role = member.role
        self._short_lives[role] = self._short_lives[role] + 1 if is_short else 0
        self._ended(member)

    def _role_of(self, member: Member) -> str:
        if member.role is Role.FRONT:
            return "front" if member.is_ready else "starting front"
        if member is self.core:
            return "core"
        return "spare" if member.has_started else "starting spare"


def _delay_s(short_lives: int) -> float:
    """How long a start waits after this number of processes in a row that ended early."""
    if short_lives < FREE_RESTARTS:
        return 0.0
    return float(min(RESTART_MAX_S, RESTART_MIN_S * 2 ** min(short_lives - FREE_RESTARTS, 10)))


def _how(member: Member) -> str:
    code = member.process.returncode
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
