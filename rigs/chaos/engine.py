"""The engine of a cluster: a real Valkey or Redis without persistence: it forgets when it ends."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from extproc.demo.port import free_ports
from extproc.demo.process import Child
from rigs.chaos.member import HOST, READY_S
from rigs.chaos.processes import listens
from tests.fakes.valkey import PROGRAM


class Engine:
    """One server on a port of its own."""

    def __init__(
        self, folder: Path, start: Callable[[str, Sequence[str | Path]], Awaitable[Child]]
    ) -> None:
        [self._port] = free_ports(1)
        self._folder = folder
        self._start = start
        self.child: Child | None = None

    @property
    def url(self) -> str:
        """What members name it by."""
        return f"redis://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start it, empty, and wait until it accepts connections."""
        assert PROGRAM is not None, "the caller has checked that there is one"
        self.child = await self._start(
            "engine",
            [
                *(PROGRAM, "--port", str(self._port), "--bind", HOST, "--save", ""),
                *("--appendonly", "no", "--dir", self._folder),
            ],
        )
        await self.child.wait_ready(partial(listens, self._port), timeout_s=READY_S)
