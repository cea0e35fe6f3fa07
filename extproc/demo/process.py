"""Child processes that are watched while they run and never outlive this process.

Rules:
- Each child leads its own session, so the terminal's Ctrl-C reaches only us and we stop the
  children in order; a stop is SIGTERM to its process group, then SIGKILL after a grace.
- The kernel ends each child when this process ends, also after kill -9 (`parent_death_signal`).
  It watches the thread that started the child: start children from a thread that keeps running.
- What a child prints goes to one log file, whose end is part of every error about it.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from extproc.keeper import parent_death_signal
from extproc.keeper.server_process import how_it_ended, start_tied

Probe = Callable[[], Awaitable[bool]]

READY_POLL_S = 0.05
TAIL_LINES = 15
STOP_GRACE_S = 5.0


async def until(probe: Probe, *, every_s: float = READY_POLL_S) -> None:
    """Repeat `probe` until it succeeds; limit it by a timeout."""
    while True:
        if await probe():
            return
        await asyncio.sleep(every_s)


class ChildError(Exception):
    """A child ended by itself or never got ready. `tail` is the end of what it printed."""

    def __init__(self, name: str, message: str, tail: str) -> None:
        super().__init__(f"{name} {message}")
        self.name = name
        self.tail = tail


class Child:
    """One running process; made by `Child.start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._is_stopped = False

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start `command` with its output going to `log`; it is not ready yet.

        A command that cannot be run at all shows as a child that ended at once.
        """
        # Appending, so that a file that `trim_log` emptied goes on from its beginning.
        with log.open("ab") as sink:
            process = await start_tied(
                parent_death_signal.__file__,
                [*map(str, command)],
                sink=sink,
                environment=environment,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait until it has ended; its exit status, or minus the signal that ended it."""
        return await self._process.wait()

    async def wait_ready(self, probe: Probe, *, timeout_s: float) -> None:
        """Ask `probe` until it says yes. Raises `ChildError` when the child ends or time is up."""
        ended = asyncio.ensure_future(self._process.wait())
        ready = asyncio.ensure_future(until(probe))
        try:
            await asyncio.wait(
                [ended, ready], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
            ready.cancel()
        if not self.is_running:
            raise self.exit_error()
        if not ready.done():
            raise self._error(f"was not ready after {timeout_s:g} s")
        ready.result()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End it and whatever it started. Returns when it is gone, also when called twice."""
        if self._is_stopped:
            return
        try:
            if self.is_running:
                self._signal_group(signal.SIGTERM)
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """Send SIGKILL to it and whatever it started, once; returns at once."""
        if not self._is_stopped:
            # Later the number may be another process's, so never twice.
            self._is_stopped = True
            self._signal_group(signal.SIGKILL)

    def exit_error(self) -> ChildError:
        """The error with its exit status; only for a child that has ended."""
        status = self._process.returncode
        assert status is not None
        return self._error(how_it_ended(status))

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines that it printed."""
        with self.log.open("rb") as text:
            text.seek(max(0, self.log.stat().st_size - 16_384))
            return "\n".join(text.read().decode(errors="replace").splitlines()[-lines:])

    def trim_log(self, above_bytes: int) -> None:
        """Empty the log when it is larger than that; its content is lost."""
        if self.log.stat().st_size > above_bytes:
            os.truncate(self.log, 0)

    def _error(self, message: str) -> ChildError:
        return ChildError(self.name, message, self.log_tail())

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Children:
    """All children of one command: leaving the block stops each, the last started first."""

    def __init__(self, folder: Path, *, grace_s: float = STOP_GRACE_S) -> None:
        """Logs are written into `folder`, one file a child, named after it."""
        self._folder = folder
        self._grace_s = grace_s
        self._children: list[Child] = []

    async def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start one more; see `Child.start`."""
        log = self._folder / f"{name.replace('/', '-')}.log"
        child = await Child.start(name, command, log=log, environment=environment)
        self._children.append(child)
        return child

    def trim_logs(self, above_bytes: int) -> None:
        """Empty each log that is larger than that; for runs of weeks."""
        for child in self._children:
            child.trim_log(above_bytes)

    async def first_exit(self) -> Child:
        """Wait until any child has ended by itself, end what it started, and return it. It is no
        child any more."""
        waits = {asyncio.ensure_future(child.wait()): child for child in self._children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        lost = next(child for wait, child in waits.items() if wait in done)
        self._children.remove(lost)
        lost.kill()
        return lost

    async def stop(self) -> None:
        """Stop all of them, the last started first. Cancelled, it is quick instead of polite;
        only cancelled once more it leaves killed ones whose end nobody saw."""
        try:
            while self._children:
                await self._children[-1].stop(self._grace_s)
                self._children.pop()
        finally:
            for child in self._children:
                child.kill()
            await asyncio.gather(*(child.wait() for child in self._children))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
