"""Where streams wait for their settlement: the asyncio side of the line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.outcome import Settlement
    from extproc.core.queue import Ticket
    from extproc.stream.exchange import Exchange


class WaitingRoom:
    """Wakes the stream whose ticket was settled. It holds as many as the line does."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Exchange, asyncio.Future[None]]] = {}
        self._by_request: dict[str, Ticket] = {}

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """Hand the settlement to its exchange at once, so that a lease always has an owner."""
        exchange, woken = self._waiting.pop(ticket.id)
        self._forget_name(ticket)
        exchange.settle(settlement)
        if not woken.done():
            woken.set_result(None)

    def enter(self, exchange: Exchange, ticket: Ticket) -> asyncio.Future[None]:
        """Begin to wait, in the same turn in which the ticket was drawn; await the result."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[ticket.id] = (exchange, woken)
        if ticket.request.id:
            self._by_request[ticket.request.id] = ticket
        return woken

    def leave(self, ticket: Ticket) -> None:
        """Wait no more; one that was settled already is no error."""
        self._waiting.pop(ticket.id, None)
        self._forget_name(ticket)

    def find(self, request_id: str) -> Ticket | None:
        """Who waits with this id; of several that share one, the last to come."""
        return self._by_request.get(request_id)

    def _forget_name(self, ticket: Ticket) -> None:
        if self._by_request.get(ticket.request.id) is ticket:
            del self._by_request[ticket.request.id]
