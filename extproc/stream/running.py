"""One stream while it runs: an exchange and the wire to its Envoy, as the registry keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.registry import ExchangeSight
    from extproc.stream.exchange import Exchange
    from extproc.stream.wire import Wire


class RunningStream:
    """Lets others than its own coroutine look at an exchange, and end it."""

    __slots__ = ("_wire", "exchange", "id")

    def __init__(self, exchange: Exchange, wire: Wire) -> None:
        self.exchange = exchange
        self.id = exchange.id
        self._wire = wire

    def sight(self, now: float) -> ExchangeSight:
        return self.exchange.sight(now)

    def break_off(self) -> None:
        self.exchange.break_off()

    async def cancel(self, now: float) -> None:
        """End it for its client: refused where it waits, cut off where it runs."""
        if self.exchange.cancel(now) and (refusal := self.exchange.take_reply()) is not None:
            await self._wire.write(refusal)
