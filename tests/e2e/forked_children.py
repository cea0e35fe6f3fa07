"""Children of a stack that are forked where they are modules of ours: see `fork_server`."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from extproc.demo.process import Child, Children
from extproc.keeper import parent_death_signal
from tests.e2e.fork_server import NUMBER
from tests.long_run import IS_LONG_RUN

ROOT = Path(__file__).resolve().parents[2]


class ForkedChildren(Children):
    """In the long run, each start is that of a command, as in production."""

    async def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        words = [str(word) for word in command]
        if IS_LONG_RUN or words[:2] != [sys.executable, "-m"]:
            return await super().start(name, command, environment=environment)
        log = self._folder / f"{name}.log"
        process = await _fork_server().start(words[2:], log, environment or os.environ)
        child = Child(name, cast("asyncio.subprocess.Process", process), log)
        self._children.append(child)
        return child


class ForkServer:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", parent_death_signal.__file__, str(os.getpid())),
                    *(sys.executable, "-m", "tests.e2e.fork_server", str(theirs.fileno())),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def close(self) -> None:
        """End it; what it has forked ends with it."""
        self._requests.close()
        self._process.wait()

    async def start(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> ForkedProcess:
        """Run `python -m` with these words, its output going to `log`."""
        request = json.dumps([*words, os.getcwd(), dict(environment)]).encode()
        status, theirs = os.pipe()
        try:
            with log.open("ab") as sink:
                pid = await asyncio.to_thread(self._ask, request, [sink.fileno(), theirs])
        finally:
            os.close(theirs)
        return ForkedProcess(pid, status)

    def _ask(self, request: bytes, descriptors: list[int]) -> int:
        with self._asking:
            socket.send_fds(self._requests, [request], descriptors)
            [pid] = NUMBER.unpack(self._requests.recv(NUMBER.size))
            return int(pid)


class ForkedProcess:
    """What a `Child` uses of an `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, status: int) -> None:
        """`status` is the pipe that tells the exit status when it has ended."""
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(status, self._read)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _read(self) -> None:
        self._loop.remove_reader(self._status)
        told = os.read(self._status, NUMBER.size)
        os.close(self._status)
        [self.returncode] = NUMBER.unpack(told) if told else [-signal.SIGKILL]
        self._ended.set()


@functools.cache
def _fork_server() -> ForkServer:
    """That of this worker, from the first start on."""
    server = ForkServer()
    atexit.register(server.close)
    return server
