"""One llama-server as a process: started behind a guard, its output kept, and stopped."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final, Self

from extproc.keeper import guard
from extproc.keeper.leftovers import MARK, kill_leftovers
from extproc.keeper.log_ring import LogRing
from extproc.keeper.output_pipe import OutputPipe

STOP_GRACE_S: Final = 15.0
"""llama-server frees its memory before it ends; large models take seconds."""
OWN_VARIABLES: Final = frozenset({"COXSWAIN_TOKEN", "PYDANTIC_DISABLE_PLUGINS"})
"""The keeper's token for the picker, and what `extproc.cli.loading` sets for this process."""


class ServerProcess:
    """A running server; made by `start`. Belongs to one event loop."""

    def __init__(
        self, process: asyncio.subprocess.Process, mark: str, output: OutputPipe, log: LogRing
    ) -> None:
        self._process = process
        self._mark = mark
        self._output = output
        self._log = log

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: LogRing,
        *,
        is_private: bool = False,
    ) -> Self:
        """Start it. A command that cannot be run shows as a server that ended at once.
        `is_private`: nobody else can read the files that it writes."""
        output = OutputPipe(log.feed, log.end)
        mark = uuid.uuid4().hex
        try:
            process = await start_tied(
                guard.__file__,
                command,
                sink=output.sink,
                environment={**_inherited(), **environment, MARK: mark},
                is_private=is_private,
            )
        except BaseException:
            output.close()
            raise
        finally:
            output.close_sink()
        return cls(process, mark, output, log)

    @property
    def pid(self) -> int:
        """The guard's process id; the server is its child."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> None:
        """Wait until it has ended with all that it started, and its last line is in the log."""
        await self._process.wait()
        if left := await asyncio.to_thread(kill_leftovers, self.pid, self._mark):
            self._log.add(f"[keeper] its guard is gone; {left} of its processes are killed")
        self._output.close()

    def how_it_ended(self) -> str:
        """For people; only after it has ended."""
        status = self._process.returncode
        assert status is not None, "it still runs"
        return how_it_ended(status)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End it and everything that it started. Cancelled, it kills; either way it returns when
        all is gone."""
        try:
            self._signal(signal.SIGTERM)
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            self._log.add(f"[keeper] it did not end within {grace_s:g} s and is killed")
        finally:
            self._signal(signal.SIGUSR1)  # the guard's word for SIGKILL
            await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def start_tied(
    starter: str,
    command: Sequence[str],
    *,
    sink: int | IO[bytes],
    environment: Mapping[str, str] | None = None,
    is_private: bool = False,
) -> asyncio.subprocess.Process:
    """Start `command` by a script of this package that ends it with this process: `guard`, which
    also ends all that it starts, or `parent_death_signal`. It leads a session of its own, reads
    nothing, and prints to `sink`. `is_private`: nobody else can read the files that it writes.

    A command that cannot be run shows as one that ended at once.
    """
    # uvloop, which `up` may run on, takes no `umask` at all.
    mask: dict[str, Any] = {"umask": 0o077} if is_private else {}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", starter, str(os.getpid())),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sink,
        stderr=sink,
        env=environment,
        start_new_session=True,
        **mask,
    )


def how_it_ended(status: int) -> str:
    """An exit status, or minus the signal that ended a process, for people."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def _inherited() -> dict[str, str]:
    """The keeper's environment without what is its own."""
    return {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
