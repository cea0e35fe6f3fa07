"""One llama-server as a process: started behind a guard, its output kept, and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from extproc.keeper import guard
from extproc.keeper.log_ring import LogRing

STOP_GRACE_S: Final = 15.0
"""llama-server frees its memory before it ends; large models take seconds."""
CHUNK_BYTES: Final = 65_536
TOKEN_VARIABLE: Final = "COXSWAIN_TOKEN"  # noqa: S105  # the name of a variable


class ServerProcess:
    """A running server; made by `start`. Belongs to one event loop."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, log: LogRing) -> None:
        """`output` is the reading end of a pipe, which this owns from now on."""
        self._process = process
        self._log = log
        self._output: int | None = output
        os.set_blocking(output, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(output, self._read_output)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: LogRing,
        *,
        is_private: bool = False,
    ) -> ServerProcess:
        """Start it. A command that cannot be run shows as a server that ended at once.
        `is_private`: nobody else can read the files that it writes."""
        # Not asyncio's own pipe: the end of a process would wait for all that have it open.
        output, sink = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guard.__file__, str(os.getpid())),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**_inherited(), **environment},
                start_new_session=True,
                umask=0o077 if is_private else -1,
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(sink)
        return cls(process, output, log)

    @property
    def pid(self) -> int:
        """The guard's process id; the server is its child."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> None:
        """Wait until it has ended and its last line is in the log."""
        await self._process.wait()
        while self._output is not None and self._read_output():
            pass
        self._close_output()

    def how_it_ended(self) -> str:
        """For people; only after it has ended."""
        status = self._process.returncode
        assert status is not None, "it still runs"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with exit status {status}"

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End it and everything that it started; returns when all is gone. Cancelled, it kills."""
        try:
            self._signal(signal.SIGTERM)
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            self._log.add(f"[keeper] it did not end within {grace_s:g} s and is killed")
        finally:
            self._signal(signal.SIGUSR1)  # the guard's word for SIGKILL
        await self.wait()

    def kill(self) -> None:
        """Kill it and everything that it started; returns at once."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _read_output(self) -> bool:
        """Read what there is; returns whether there may be more."""
        if self._output is None:
            return False
        try:
            chunk = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._close_output()
            return False
        self._log.feed(chunk)
        return True

    def _close_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            self._loop.remove_reader(output)
            os.close(output)
            self._log.end()


def _inherited() -> dict[str, str]:
    """The keeper's environment without its token for the picker."""
    return {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
