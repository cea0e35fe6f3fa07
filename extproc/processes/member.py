"""One process of the supervisor."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from typing import Any

from extproc.core.processes import Process, TakeoverReason
from extproc.processes.control import Control, Message, channel


class Role(Enum):
    """What a process does. A spare is a core that does not lead."""

    CORE = "core"
    FRONT = "front"


class Member:
    """A running process; made by `Member.start`. `heard` gets what it reports, `ended` is called
    once, when it is gone."""

    def __init__(self, role: Role, name: str, process: asyncio.subprocess.Process) -> None:
        self.role = role
        self.name = name
        self.process = process
        self.since = self.alive_at = time.monotonic()
        self.has_started = False
        self.is_ready = False
        """A front to which a core has spoken, or a core that leads."""
        self.is_leaving = False
        self.is_silent = False
        """A front that seems to stand still."""
        self.is_hung = False
        """It is killed because it does not answer."""
        self.number = 0
        """Of a front: small, and free again after its end."""
        self.link = 0
        """The number of a front's present link."""
        self.linked_at = float("-inf")
        """Since when it has this link."""
        self.connections = 0
        self.calls = 0
        self.follows_until = 0.0
        """Until when a front takes the core of another machine for one that decides."""
        self._control: Control | None = None
        self._wait: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        role: Role,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        heard: Callable[[Member, Message], None],
        ended: Callable[[Member], None],
    ) -> Member:
        """Start `command` with the role, the name, and the descriptor of its channel behind it.

        It leads a session of its own: the terminal's Ctrl-C reaches only the supervisor.
        """
        ours, theirs = channel()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                *(role.value, name, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        member = cls(role, name, process)
        member._control = Control(
            ours, lambda message, _: heard(member, message), member._control_closed
        )
        member._wait = asyncio.create_task(member._until_ended(ended))
        return member

    @property
    def pid(self) -> int:
        return self.process.pid

    def order(self, what: str, *sockets: socket.socket, **more: Any) -> bool:
        """Send it an order; returns whether it was sent."""
        assert self._control is not None
        return self._control.send({"do": what, **more}, *sockets)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def end_at_once(self) -> None:
        """End a core that leads: the fronts hold all that counts."""
        self.is_leaving = True
        self.send_signal(signal.SIGKILL)

    def describe(self, role: str) -> dict[str, object]:
        """For operators."""
        process = Process(
            name=self.name,
            role=role,
            pid=self.pid,
            age_s=round(time.monotonic() - self.since, 1),
            connections=self.connections,
            calls=self.calls,
            number=self.number,
        )
        return asdict(process)

    def takeover_reason(self) -> TakeoverReason:
        """Why another core takes over from this one, which has ended."""
        if self.is_hung:
            return TakeoverReason.HUNG
        return TakeoverReason.LEFT if self.is_leaving else TakeoverReason.ENDED

    async def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return await self.process.wait()

    def _control_closed(self) -> None:
        """Its end follows."""

    async def _until_ended(self, ended: Callable[[Member], None]) -> None:
        await self.process.wait()
        if self._control is not None:
            self._control.close()
        ended(self)
