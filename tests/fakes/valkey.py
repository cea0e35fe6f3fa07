"""A real Valkey or Redis for a test: the machine's own server program, on a port of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

from extproc.demo.port import free_ports

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
MISSING = "there is no valkey-server or redis-server: apt-get install valkey-server"


class Valkey:
    """One server without persistence; use it as `async with`."""

    def __init__(self, folder: Path, addresses: tuple[str, ...] = ()) -> None:
        """It listens on loopback, and on these addresses."""
        self.folder = folder
        self._addresses = ("127.0.0.1", *addresses)
        [self.port] = free_ports(1)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, empty, and wait until it accepts connections."""
        assert PROGRAM is not None, MISSING
        self._process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "--port", str(self.port), "--save", "", "--protected-mode", "no"),
            *("--bind", *self._addresses),
            *("--appendonly", "no", "--dir", str(self.folder)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def strike(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """As kill -9: all that it knew is gone."""
        if self._process is not None and self.is_running:
            self._process.kill()
            await self._process.wait()

    async def __aenter__(self) -> Valkey:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
