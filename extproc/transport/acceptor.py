"""Listening sockets, and what accepts their connections as long as somebody has room for them: the
servers of asyncio and uvloop know of no pause."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

BACKLOG: Final = 4_096
"""How many connections may wait in the kernel, if the system allows as many."""
PAUSE_S: Final = 0.1

log = logging.getLogger("coxswain.transport")


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of `host`, not blocking, all on one port: a free one if
    `port` is 0. Raises `OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            place = (address[0], port, *address[2:])
            sockets.append(_listening(family, kind, protocol, place))
            port = sockets[-1].getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _listening(family: int, kind: int, protocol: int, place: Any) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            is_any = place[0] == "::"
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_any)
        listening.bind(place)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


class Acceptor:
    """Gives each connection of `listeners` to `take`; while it does not accept, they wait in the
    kernel. Accepts nothing until `accept`. Belongs to one event loop."""

    def __init__(
        self, listeners: Sequence[socket.socket], take: Callable[[socket.socket], None]
    ) -> None:
        """`take` may end the accepting; what it raises is logged by the loop."""
        self._listeners = listeners
        self._take = take
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
                loop.add_reader(each.fileno(), self._accept_all, each)
            else:
                loop.remove_reader(each.fileno())

    def close(self) -> None:
        """Stop, and close the listeners."""
        self.accept(False)
        for each in self._listeners:
            each.close()

    def _accept_all(self, listener: socket.socket) -> None:
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
            self._take(connection)

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
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept_all, listener)
