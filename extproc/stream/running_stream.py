"""A running stream: an exchange and its connection to Envoy, as the registry keeps it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from extproc.core.rejection import Reason
from extproc.core.scheduler.decision import Picked
from extproc.stream.envoy.operation import Completion

if TYPE_CHECKING:
    from extproc.core.queue.ticket import Ticket
    from extproc.core.scheduler.decision import Settlement
    from extproc.core.scheduler.exchange_registry import ExchangeSnapshot
    from extproc.core.slots.lease import Lease
    from extproc.pb import external_processor_pb2 as pb
    from extproc.stream.exchange import Exchange

    Context = grpc.aio.ServicerContext[pb.ProcessingRequest, pb.ProcessingResponse]


class StreamOverError(Exception):
    """The stream has ended, so nothing can be written."""


class RunningStream:
    """Its own coroutine reads and answers, and sleeps while the request waits. Others may look at
    the exchange, settle its wait, and end it."""

    __slots__ = ("_context", "_failure", "_is_sending", "_settled", "_task", "exchange", "id")

    def __init__(self, exchange: Exchange, context: Context) -> None:
        self.exchange = exchange
        self.id = exchange.id
        self._context = context
        self._task = asyncio.current_task()
        self._is_sending = False
        self._settled: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    async def answer(self, first: pb.ProcessingResponse | None = None) -> None:
        """Send `first`, then what the exchange has to say now; waits for the network. While
        somebody sends, others leave what they have to say to him: gRPC takes one message at a
        time. Raises `StreamOverError` once the stream has ended, in whatever way: its client
        left, we answered to its end, or we broke it off."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            reply = first or self.exchange.take_reply()
            while reply is not None:
                await Completion(self._context.write(reply))
                reply = self.exchange.take_reply()
        except grpc.aio.BaseError as error:
            raise StreamOverError from error
        finally:
            self._is_sending = False

    def settle(self, settlement: Settlement) -> bool:
        """The wait is over: the exchange owns the result at once, and Envoy hears of it when its
        coroutine is next. A client that leaves before that is sent nowhere.

        Returns whether the exchange owns what it was given. Where it cannot be told to Envoy, the
        coroutine ends with the error, and gives back what the exchange owns. Never raises.
        """
        try:
            self.exchange.settle(settlement)
        except Exception as error:  # noqa: BLE001 - its own coroutine raises it
            self._failure = error
        if self._settled is not None and not self._settled.done():
            self._conclude(self._settled)
        return not isinstance(settlement, Picked) or self.exchange.lease is settlement.lease

    def settled(self) -> asyncio.Future[None]:
        """Called when the wait is over. Not a coroutine, which every queued request would need."""
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
            if self._failure is not None or self.exchange.ticket is None:
                self._conclude(self._settled)
        return self._settled

    def _conclude(self, settled: asyncio.Future[None]) -> None:
        if self._failure is None:
            settled.set_result(None)
        else:
            settled.set_exception(self._failure)

    # What others see and do

    def snapshot(self, now: float) -> ExchangeSnapshot:
        return self.exchange.snapshot(now)

    @property
    def lease(self) -> Lease | None:
        return self.exchange.lease

    @property
    def ticket(self) -> Ticket | None:
        return self.exchange.ticket

    @property
    def is_over(self) -> bool:
        return self.exchange.has_ended or (self._task is not None and self._task.done())

    def give_back(self, now: float) -> None:
        if not self.exchange.has_ended:
            self.exchange.end(now)

    def drop_lease(self) -> None:
        self.exchange.drop_lease()

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        self.exchange.break_off(is_servers_fault=is_servers_fault)

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        return self.exchange.upload_reported(body_bytes, now, is_whole=is_whole)

    async def end_upload(self, why: str, now: float) -> None:
        await self.cancel(now, Reason.UPLOAD_STALLED, why)

    async def cancel(self, now: float, reason: Reason = Reason.CANCELLED, text: str = "") -> None:
        """End it for its client: refused where it waits, cut off where it runs. One whose stream
        ends in the same moment is over anyway."""
        if self.exchange.cancel(now, reason, text):
            with suppress(StreamOverError):
                await self.answer()
