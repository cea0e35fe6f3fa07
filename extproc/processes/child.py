"""What each process of the supervisor does: it reports that it lives, and ends with it."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from extproc.processes.control import Control, Message

ALIVE_S: Final = 0.1
PR_SET_PDEATHSIG: Final = 1

log = logging.getLogger("coxswain.processes")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is: its name, the supervisor's process id, and its end of the channel."""

    name: str
    supervisor: int
    descriptor: int


def tie_to_supervisor(supervisor: int) -> None:
    """Have the kernel kill this process with the supervisor, also while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)  # it died before the request


class Child:
    """This process, as the supervisor sees it. Belongs to one event loop."""

    def __init__(
        self,
        identity: Identity,
        hear: Callable[[Message, list[socket.socket]], None],
        figures: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """`figures` are reported with each sign of life."""
        self.name = identity.name
        self._figures = figures
        end = socket.socket(fileno=identity.descriptor)
        self._control = Control(end, hear, self._orphaned)
        self._alive_at = 0.0
        self._alive()

    def report(self, what: str, **more: object) -> None:
        """Send the supervisor a message."""
        self._control.send({"is": what, **more})

    def progress(self) -> None:
        """Give a sign of life if one is due: to be called in work that takes long."""
        if time.monotonic() - self._alive_at >= ALIVE_S:
            self._say_alive()

    def _alive(self) -> None:
        self._say_alive()
        asyncio.get_running_loop().call_later(ALIVE_S, self._alive)

    def _say_alive(self) -> None:
        self._alive_at = time.monotonic()
        self._control.send({"is": "alive", **self._figures()})

    def _orphaned(self) -> None:
        """Without a supervisor there is nobody to serve for."""
        os._exit(1)
