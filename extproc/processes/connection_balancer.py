"""Accepts Envoys' connections and gives each to the front with the fewest.

One that stands still gets none while there is another. Each is kept here, too, until its front says
that it serves it: none is lost with a front that has not. While there is no front, connections wait
in the kernel.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from itertools import count

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
        self._numbers = count()
        self._given: dict[int, tuple[Member, socket.socket]] = {}

    def accept(self, is_accepting: bool) -> None:
        """Begin or stop to accept connections."""
        self._acceptor.accept(is_accepting)

    def close(self) -> None:
        """Stop, and let go of what no front has taken."""
        self.accept(False)
        for number in list(self._given):
            self.served(number)

    def served(self, number: int) -> None:
        """Its front has taken the connection with this number; no error after `close`."""
        _, connection = self._given.pop(number, (None, None))
        if connection is not None:
            connection.close()

    def ended(self, front: Member) -> None:
        """This front is gone: others get what it has not taken."""
        for number, (owner, connection) in list(self._given.items()):
            if owner is front:
                del self._given[number]
                self._give(connection)

    def _give(self, connection: socket.socket) -> None:
        ready = self._ready_fronts()
        for front in sorted(ready, key=lambda each: (each.is_silent, each.connections)):
            number = next(self._numbers)
            if front.order(
                "serve", connection.dup(), number=number, pool=self._pool_of(connection)
            ):
                front.connections += 1
                self._given[number] = front, connection
                return
        connection.close()

    def _pool_of(self, connection: socket.socket) -> str:
        """The pool of the port that a connection came to; empty if that is of none."""
        return self._pools.get(connection.getsockname()[1], "")
