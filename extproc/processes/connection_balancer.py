"""Accepts Envoys' connections and gives each to the front with the fewest.

One that stands still gets none while there is another. None is lost with a front that has not
accepted it. While there is no front, connections wait in the kernel.
"""

import socket
from collections.abc import Callable, Mapping, Sequence

from extproc.processes.member import Member
from extproc.transport.acceptor import Acceptor


class ConnectionBalancer:
    """Accepts nothing until `accept`. Belongs to one event loop."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        ready_fronts: Callable[[], Sequence[Member]],
        pools: Mapping[int, str] | None = None,
    ) -> None:
        """`pools` has the pool of each port of `listeners` that is one of a pool."""
        self._ready_fronts = ready_fronts
        self._pools = pools or {}
        self._acceptor = Acceptor(listeners, self._give)

    def accept(self, is_accepting: bool) -> None:
        """Begin or stop to accept connections."""
        self._acceptor.accept(is_accepting)

    def _give(self, connection: socket.socket) -> None:
        ready = self._ready_fronts()
        if not ready:
            connection.close()
            return
        front = min(ready, key=lambda each: (each.is_silent, each.connections))
        front.connections += 1
        front.order("serve", connection, pool=self._pool_of(connection))

    def _pool_of(self, connection: socket.socket) -> str:
        """The pool of the port that a connection came to; empty if that is of none."""
        return self._pools.get(connection.getsockname()[1], "")
