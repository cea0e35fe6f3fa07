"""Who is being served or waits right now: every exchange from its first to its last message.

The request path pays one dict insert and one delete; all else is worked out when asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extproc.core.address import Address
    from extproc.core.queue.ticket import Ticket
    from extproc.core.slots.lease import Lease


class ExchangeState(Enum):
    """How far an exchange has come."""

    READING = "reading"  # the body that decides about it still comes
    WAITING = "waiting"  # in line for a slot
    RUNNING = "running"  # holds a slot; its server has not answered yet
    ANSWERING = "answering"  # holds a slot; the answer has begun
    PASSING = "passing"  # takes no slot
    OVER = "over"  # refused, or about to leave the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSnapshot:
    """One exchange at one moment. `ticket` is its ticket in the line, None unless it waits."""

    exchange_id: str
    request_id: str
    state: ExchangeState
    endpoint: Address | None
    age_s: float
    waited_s: float
    weight_slots: int
    ticket: Ticket | None = None
    model: str = ""
    criticality: str = ""
    objective: str = ""


class KnownExchange(Protocol):
    """What the registry keeps: a live exchange, as those see it who do not serve it."""

    @property
    def id(self) -> str: ...

    @property
    def lease(self) -> Lease | None:
        """What it holds, for the auditor."""

    @property
    def ticket(self) -> Ticket | None:
        """What it waits with, for the auditor."""

    @property
    def is_over(self) -> bool:
        """Whether nobody serves it any more, so that it should not be here."""

    def give_back(self, now: float) -> None:
        """Give back what it holds, for one that is over; a second time is no error."""

    def drop_lease(self) -> None:
        """Its lease is closed already: it has none to give back."""

    def snapshot(self, now: float) -> ExchangeSnapshot:
        """The exchange as it is at `now`. Synchronous, without side effects."""

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        """Envoy reported that it did not come to its proper end."""

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        """Envoy reported how much came of a request, and whether that is all. Returns why it has to
        end, in words for its client; None where it may go on."""

    async def end_upload(self, why: str, now: float) -> None:
        """End it for that reason. May wait for the network."""

    async def cancel(self, now: float) -> None:
        """End it for its client; one that is over is no error. May wait for the network."""


class ExchangeRegistry:
    """The exchanges that run or wait, oldest first. Belongs to one event loop."""

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
        """Forget it; one that is not here is no error."""
        self._exchanges.pop(exchange.id, None)

    def get(self, exchange_id: str) -> KnownExchange | None:
        return self._exchanges.get(exchange_id)

    def find(self, id_: str, now: float) -> list[tuple[KnownExchange, ExchangeSnapshot]]:
        """Those with this exchange id or request id: clients may use one id twice. O(n).

        An empty id is nobody's, though many requests come without one.
        """
        if not id_:
            return []
        exchange = self._exchanges.get(id_)
        if exchange is not None:
            return [(exchange, exchange.snapshot(now))]
        found = ((exchange, exchange.snapshot(now)) for exchange in self._exchanges.values())
        return [(exchange, sight) for exchange, sight in found if sight.request_id == id_]
