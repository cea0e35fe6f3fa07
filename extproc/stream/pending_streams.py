"""Where streams wait for their settlement: the asyncio side of the queue."""

from collections.abc import Iterator

from extproc.core.decision import Settlement
from extproc.core.queue.ticket import Ticket
from extproc.stream.running_stream import RunningStream


class PendingStreams:
    """Finds the stream whose ticket was settled. It holds as many as the queue does."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Ticket, RunningStream]] = {}
        self._by_request: dict[str, dict[int, Ticket]] = {}
        """Several may share an id: clients repeat it, and anybody may send that of another."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket.id in self._waiting

    def tickets(self) -> Iterator[Ticket]:
        """The tickets whose streams wait, in the order in which they came."""
        return (ticket for ticket, _ in self._waiting.values())

    def settled(self, ticket: Ticket, settlement: Settlement) -> bool:
        """Hand the settlement to its stream at once. Returns whether the stream owns the lease
        now, if there is one; False where the stream is gone: then the caller gives it back."""
        entry = self._waiting.pop(ticket.id, None)
        if entry is None:
            return False
        try:
            return entry[1].settle(settlement)
        finally:
            self._forget_name(ticket)

    def enter(self, stream: RunningStream, ticket: Ticket) -> None:
        """Begin to wait, in the same turn in which the ticket was drawn."""
        self._waiting[ticket.id] = (ticket, stream)
        if ticket.request.id:
            self._by_request.setdefault(ticket.request.id, {})[ticket.id] = ticket

    def leave(self, ticket: Ticket) -> None:
        """Wait no more; one that was settled already is no error."""
        self._waiting.pop(ticket.id, None)
        self._forget_name(ticket)

    def find(self, request_id: str, client: str = "") -> Ticket | None:
        """Who waits with this id; of several that share one, the first to come of this client, or
        else of all: who comes later hides none. O(those that share it)."""
        tickets = self._by_request.get(request_id)
        if tickets is None:
            return None
        own = (one for one in tickets.values() if client and self._client_of(one) == client)
        return next(own, None) or next(iter(tickets.values()))

    def stream_of(self, request_id: str) -> RunningStream | None:
        """The stream of who waits with this id; of several that share one, the last to come."""
        tickets = self._by_request.get(request_id)
        return None if tickets is None else self._waiting[max(tickets)][1]

    def _client_of(self, ticket: Ticket) -> str:
        return self._waiting[ticket.id][1].exchange.client

    def _forget_name(self, ticket: Ticket) -> None:
        tickets = self._by_request.get(ticket.request.id)
        if tickets is not None:
            tickets.pop(ticket.id, None)
            if not tickets:
                del self._by_request[ticket.request.id]
