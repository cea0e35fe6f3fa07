"""Kills what is left of a server whose guard is gone: a guard that is killed takes its server with
it, but not what that has started.

All of them have the guard's session, or at least an environment that began with its mark. Linux
only; elsewhere nothing is found.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "COXSWAIN_SERVER"
"""The environment variable that names a server to its processes."""
LONGEST_S: Final = 5.0
POLL_S: Final = 0.02
_PROC: Final = Path("/proc")


def kill_leftovers(guard: int, mark: str) -> int:
    """Kill all processes of a guard that has ended; returns how many there were. Blocks until they
    are gone, for at most `LONGEST_S`."""
    killed: set[int] = set()
    until = time.monotonic() + LONGEST_S
    while found := [pid for pid in _pids() if _kill(pid, guard, mark)]:
        killed.update(found)
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    return len(killed)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
    except OSError:
        return []


def _kill(pid: int, guard: int, mark: str) -> bool:
    """Kill the process if it is one of them; a process that took its number meanwhile is safe."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _belongs(pid, guard, mark):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


def _belongs(pid: int, guard: int, mark: str) -> bool:
    state, _parent, _group, session = (
        (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:4]
    )
    if state in "ZX":
        return False
    if int(session) == guard:
        return True
    variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return f"{MARK}={mark}".encode() in variables
