"""Every exchange from its first to its last message, running or queued.

The request path pays one dict insert and one delete; everything else is computed on demand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from extproc.core.address import Address
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.lease import Lease


class ExchangeState(Enum):
    """The progress of an exchange."""

    READING = "reading"  # the part of the body that the decision needs is still coming
    QUEUED = "queued"
    RUNNING = "running"  # has a slot; its server has not responded yet
    RESPONDING = "responding"  # has a slot; the response has begun
    PASSING = "passing"  # takes no slot
    OVER = "over"  # rejected, or about to leave the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSnapshot:
    """One exchange at one moment. `endpoint_name` is how people know the endpoint, empty if it has
    none; `ticket` is its ticket in the queue, None if it has none; `client` is the name of the one
    whose key was checked, empty without; `pool` is its pool, empty where there are none."""

    exchange_id: str
    request_id: str
    state: ExchangeState
    endpoint: Address | None
    age_s: float
    waited_s: float
    weight_slots: int
    ticket: Ticket | None = None
    endpoint_name: str = ""
    model: str = ""
    criticality: str = ""
    objective: str = ""
    client: str = ""
    pool: str = ""


class KnownExchange(Protocol):
    """A live exchange, as the registry sees it."""

    @property
    def id(self) -> str: ...

    @property
    def lease(self) -> Lease | None:
        """The lease that it holds, for the auditor."""

    @property
    def ticket(self) -> Ticket | None:
        """The ticket that it waits with, for the auditor."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that it should not be in the registry."""

    def give_back(self, now: float) -> None:
        """Return what an ended exchange holds; a second call is no error."""

    def drop_lease(self) -> None:
        """Its lease is closed already, so there is none to return."""

    def snapshot(self, now: float) -> ExchangeSnapshot:
        """The exchange as it is at `now`. Synchronous, without side effects."""

    def complete(self) -> None:
        """Envoy reported that its server has sent the whole response."""

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        """Envoy reported that it did not end properly."""

    def reported(self) -> None:
        """All of Envoy's report about its end is heard. It may have waited for that."""

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        """Envoy reported the body bytes so far, and whether the body is complete. Returns why the
        exchange must end, as text for the client, or None."""

    def check_key(self, now: float) -> None:
        """Keys were revoked: end it if it waits with one of these."""

    def end_upload(self, why: str, now: float) -> None:
        """End it for that reason."""

    def cancel(self, now: float) -> None:
        """End it for its client; no error if it has ended."""


class ExchangeRegistry:
    """The running and queued exchanges, oldest first. Belongs to one event loop."""

    __slots__ = ("_exchanges",)

    def __init__(self) -> None:
        self._exchanges: dict[str, KnownExchange] = {}

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[KnownExchange]:
        return iter(self._exchanges.values())

    def enter(self, exchange: KnownExchange) -> None:
        self._exchanges[exchange.id] = exchange

    def leave(self, exchange: KnownExchange) -> None:
        """Remove it; no error if it is not here."""
        self._exchanges.pop(exchange.id, None)

    def get(self, exchange_id: str) -> KnownExchange | None:
        return self._exchanges.get(exchange_id)

    def find(self, id_: str, now: float) -> list[tuple[KnownExchange, ExchangeSnapshot]]:
        """The exchanges with this exchange id or request id: clients may repeat an id. O(n).

        An empty id matches nothing, although many requests come without one.
        """
        if not id_:
            return []
        exchange = self._exchanges.get(id_)
        if exchange is not None:
            return [(exchange, exchange.snapshot(now))]
        found = ((exchange, exchange.snapshot(now)) for exchange in self._exchanges.values())
        return [(exchange, snapshot) for exchange, snapshot in found if snapshot.request_id == id_]
