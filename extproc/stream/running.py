"""One stream while it runs: an exchange and the wire to its Envoy, as the registry keeps it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from extproc.core.outcome import Reason
from extproc.stream.wire import StreamOverError

if TYPE_CHECKING:
    from extproc.core.outcome import Settlement
    from extproc.core.registry import ExchangeSight
    from extproc.stream.exchange import Exchange
    from extproc.stream.wire import Wire

log = logging.getLogger("coxswain.stream")


class RunningStream:
    """Its own coroutine reads and answers. Others may look at the exchange, settle its wait, and
    end it; what they have to say is written beside that coroutine, which goes on reading and so
    notices when the client leaves."""

    __slots__ = ("_answering", "_settled", "_wire", "exchange", "id")

    def __init__(self, exchange: Exchange, wire: Wire) -> None:
        self.exchange = exchange
        self.id = exchange.id
        self._wire = wire
        self._answering: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None

    async def answer(self) -> None:
        """Send what the exchange has to say now; waits for the network."""
        while (reply := self.exchange.take_reply()) is not None:
            await self._wire.write(reply)

    def settle(self, settlement: Settlement) -> None:
        """The wait is over: the exchange owns the result at once, and Envoy hears of it next."""
        self.exchange.settle(settlement)
        self._answering = asyncio.create_task(self._answer_late())
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def settled(self) -> None:
        """Return when the wait is over."""
        if self.exchange.ticket is not None:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled

    async def _answer_late(self) -> None:
        await asyncio.sleep(0)  # a client that leaves in this turn of the loop is sent nowhere
        try:
            await self.answer()
        except StreamOverError:
            log.debug("exchange %s: the stream ended before the answer was written", self.id)

    def close(self) -> None:
        """Nobody listens any more."""
        if self._answering is not None:
            self._answering.cancel()

    # What others see and do

    def sight(self, now: float) -> ExchangeSight:
        return self.exchange.sight(now)

    def break_off(self) -> None:
        self.exchange.break_off()

    def stands_still_at(self, body_bytes: int) -> bool:
        return self.exchange.stands_still_at(body_bytes)

    async def give_up_upload(self, now: float) -> None:
        await self.cancel(now, Reason.UPLOAD_STALLED)

    async def cancel(self, now: float, reason: Reason = Reason.CANCELLED) -> None:
        """End it for its client: refused where it waits, cut off where it runs. One whose stream
        ends in the same moment is over anyway."""
        if self.exchange.cancel(now, reason):
            with suppress(StreamOverError):
                await self.answer()
