"""Where streams wait for their settlement: the asyncio side of the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.outcome import Settlement
    from extproc.core.queue import Ticket
    from extproc.stream.running import RunningStream


class WaitingRoom:
    """Finds the stream whose ticket was settled. It holds as many as the line does."""

    def __init__(self) -> None:
        self._waiting: dict[int, RunningStream] = {}
        self._by_request: dict[str, Ticket] = {}

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """Hand the settlement to its stream at once, so that a lease always has an owner."""
        stream = self._waiting.pop(ticket.id)
        self._forget_name(ticket)
        stream.settle(settlement)

    def enter(self, stream: RunningStream, ticket: Ticket) -> None:
        """Begin to wait, in the same turn in which the ticket was drawn."""
        self._waiting[ticket.id] = stream
        if ticket.request.id:
            self._by_request[ticket.request.id] = ticket

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
