"""Accepts Envoys' connections and gives each to the front with the fewest.

One that stands still gets none while there is another. None is lost with a front that has not
accepted it. While there is no front, connections wait in the kernel.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

from extproc.processes.member import Member

PAUSE_S: Final = 0.1

log = logging.getLogger("coxswain.processes")


class ConnectionBalancer:
    """Accepts nothing until `accept`. Belongs to one event loop."""

    def __init__(
        self, listeners: Sequence[socket.socket], ready_fronts: Callable[[], Sequence[Member]]
    ) -> None:
        self._listeners = listeners
        self._ready_fronts = ready_fronts
        self._is_accepting = False
        self._is_paused = False

    def accept(self, is_accepting: bool) -> None:
        """Begin or stop to accept connections."""
        if is_accepting is self._is_accepting:
            return
        self._is_accepting = is_accepting
        loop = asyncio.get_running_loop()
        for each in self._listeners:
            if is_accepting:
                loop.add_reader(each.fileno(), self._take, each)
            else:
                loop.remove_reader(each.fileno())

    def _pause(self, listener: socket.socket, reason: str) -> None:
        """Connections that cannot be accepted, as no descriptor is left, would wake us all the
        time."""
        if not self._is_paused:
            self._is_paused = True
            log.error("connections cannot be accepted: %s", reason)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        loop.call_later(PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if self._is_accepting and listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._take, listener)

    def _take(self, listener: socket.socket) -> None:
        while self._is_accepting:
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._pause(listener, error.strerror or "")
                return
            self._is_paused = False
            connection.setblocking(False)
            ready = self._ready_fronts()
            if not ready:
                connection.close()
                return
            front = min(ready, key=lambda each: (each.is_silent, each.connections))
            front.connections += 1
            front.order("serve", connection)
