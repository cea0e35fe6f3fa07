"""Processes as the kernel shows them: those of a picker that cannot be asked."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from extproc.demo.port import LOOPBACK

LAUNCHED = "rigs.chaos.launch"
SERVING = frozenset({"serve", "process"})


async def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


def family(supervisor: int) -> dict[int, str]:
    """The cores and fronts of a supervisor: "core" or "front" by process id. A spare is a core."""
    return {
        pid: command[-3]
        for pid, command in _commands()
        if len(command) > 4 and command[-4] == str(supervisor) and LAUNCHED in command
    }


def of_pickers(folder: Path) -> list[int]:
    """The pickers that were started with files in `folder`, and their processes."""
    return [
        pid
        for pid, command in _commands()
        if LAUNCHED in command
        and SERVING & set(command)
        and any(str(folder) in each for each in command)
    ]


def _commands() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            yield int(entry.name), text.decode(errors="replace").split("\0")[:-1]
