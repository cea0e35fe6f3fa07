"""A running stream: an exchange and its call. The registry keeps it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from extproc.core.decision import Picked, Settlement
from extproc.core.exchange_registry import ExchangeSnapshot
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import HOLD_MARGIN_S
from extproc.core.scheduler.takeover import HeldLease
from extproc.core.slots.lease import Lease
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.exchange import Exchange, ProtocolError
from extproc.transport import Call
from extproc.transport.call import Metadata
from extproc.transport.status import INTERNAL, INVALID_ARGUMENT, OK

NO_MESSAGE: Final = "not a valid message"

log = logging.getLogger("coxswain.stream")


class StreamOwner(Protocol):
    """The service, as its streams see it."""

    @property
    def clock(self) -> Callable[[], float]: ...

    def wait(self, stream: RunningStream) -> None: ...

    def leave(self, stream: RunningStream) -> None: ...

    def await_report(self, stream: RunningStream) -> bool:
        """Call `reported` when Envoy had time to report its end; false if it reports nothing."""

    def await_upload(self, stream: RunningStream) -> bool:
        """Call `upload_silent` when Envoy had time for two reports on its body; false if it sends
        none."""


class RunningStream:
    """The handler of one call: feeds Envoy's messages to the exchange and sends its replies. Others
    may read the exchange, settle its wait, and end it.

    While the request is queued nothing is read: of ten thousand, each would hold what its client
    sends. A client that leaves resets its stream, and `gone` ends the exchange.
    """

    __slots__ = (
        "_call",
        "_failure",
        "_is_awaited",
        "_is_half_closed",
        "_is_heard",
        "_is_uploading",
        "_owner",
        "exchange",
        "id",
    )

    def __init__(self, exchange: Exchange, call: Call, owner: StreamOwner) -> None:
        self.exchange = exchange
        self.id = exchange.id
        self._call = call
        self._owner = owner
        self._failure: Exception | None = None
        """Why the result of its wait cannot be sent."""
        self._is_half_closed = False
        self._is_awaited = False
        """Whether its call is over, and Envoy's report about its response on the way."""
        self._is_uploading = False
        """Whether it is awaited because its body still comes."""
        self._is_heard = False
        """Whether Envoy has reported on its body since it was asked last."""

    # What the transport calls

    def receive(self, message: bytes) -> None:
        exchange, now = self.exchange, self._owner.clock()
        is_undecided = exchange.is_undecided
        try:
            exchange.feed(pb.ProcessingRequest.FromString(message), now)
            if is_undecided:
                exchange.decided(self._owner.clock() - now)
            self._answer()
        except Exception as error:  # noqa: BLE001 - it ends this stream alone
            self._fail(error)

    def resume(self, message: bytes, held: HeldLease) -> None:
        """Continue a stream whose destination another process sent; `message` is its first."""
        try:
            request = pb.ProcessingRequest.FromString(message)
            self.exchange.resume(request, held, self._owner.clock())
        except Exception as error:  # noqa: BLE001 - it ends this stream alone
            self._fail(error)

    def half_closed(self) -> None:
        self._is_half_closed = True
        try:
            if self.exchange.half_close(self._owner.clock()):
                self._answer()
        except Exception as error:  # noqa: BLE001 - it ends this stream alone
            self._fail(error)
            return
        if self.exchange.ticket is None:
            self._finish(OK)

    def gone(self) -> None:
        try:
            if not self._call.was_reset:
                self.exchange.lose_stream()
        finally:
            self._end()

    # What the exchange says

    def _answer(self) -> None:
        """Send what the exchange has to say, or that its request waits."""
        ticket = self.exchange.ticket
        if ticket is not None:
            self._owner.wait(self)
            self._call.pause()
            self._send(codec.extend_timeout(ticket.request.timeout_s + HOLD_MARGIN_S))
        reply = self.exchange.take_reply()
        while reply is not None:
            self._send(reply)
            reply = self.exchange.take_reply()

    def _send(self, reply: pb.ProcessingResponse) -> None:
        self._call.send(reply.SerializeToString())

    def _finish(self, status: int, text: str = "") -> None:
        self._call.finish(status, text)
        self._end()

    def _end(self) -> None:
        """Its call is over. If all of a response was at Envoy with our reply to its headers, Envoy
        ends the call first and reports it then. If the call was lost while the rest of a body
        comes, its slot is taken until Envoy says that all of it is there."""
        exchange, owner = self.exchange, self._owner
        try:
            self._is_uploading = exchange.awaits_upload and owner.await_upload(self)
            self._is_awaited = self._is_uploading or (
                exchange.awaits_report and owner.await_report(self)
            )
        finally:
            if not self._is_awaited:
                self._owner.leave(self)

    def _fail(self, error: Exception) -> None:
        """End the stream for an error: Envoy's failure mode decides about the request."""
        self.exchange.lose_stream()
        if isinstance(error, (ProtocolError, DecodeError)):
            problem = str(error) if isinstance(error, ProtocolError) else NO_MESSAGE
            log.warning("exchange %s: %s; Envoy continues without the picker", self.id, problem)
            self._finish(INVALID_ARGUMENT, problem)
        else:
            log.error(
                "exchange %s failed; Envoy continues without the picker", self.id, exc_info=error
            )
            self._finish(INTERNAL, "the endpoint picker failed")

    # The end of the wait

    def settle(self, settlement: Settlement) -> bool:
        """The wait is over: the exchange owns the result at once. Envoy hears of it when the
        messages that arrived are handled: the one that settled it is somebody else's. A client
        that leaves before that is sent nowhere.

        Returns whether the exchange owns what it was given. Where it cannot be sent to Envoy, the
        stream ends with the error, and gives back what the exchange owns. Never raises.
        """
        try:
            self.exchange.settle(settlement)
        except Exception as error:  # noqa: BLE001 - the stream ends with it
            self._failure = error
        self._call.soon(self._continue)
        return not isinstance(settlement, Picked) or self.exchange.lease is settlement.lease

    def keep_waiting(self) -> None:
        """Its place has changed: what holds its call is to know."""
        self._call.pause()

    def _continue(self) -> None:
        """Send the result of the wait, and read on."""
        if self.exchange.has_ended:
            return
        if self._failure is not None:
            self._fail(self._failure)
            return
        try:
            self._answer()
            self._call.resume()
        except Exception as error:  # noqa: BLE001 - it ends this stream alone
            self._fail(error)
        else:
            if self._is_half_closed and not self.exchange.has_ended:
                self._finish(OK)

    # What others see and do

    def snapshot(self, now: float) -> ExchangeSnapshot:
        return self.exchange.snapshot(now)

    @property
    def metadata(self) -> Metadata:
        """The headers of its call."""
        return self._call.metadata

    @property
    def lease(self) -> Lease | None:
        return self.exchange.lease

    @property
    def ticket(self) -> Ticket | None:
        return self.exchange.ticket

    @property
    def is_over(self) -> bool:
        return self.exchange.has_ended or (self._call.is_over and not self._is_awaited)

    def give_back(self, now: float) -> None:
        if not self.exchange.has_ended:
            self.exchange.end(now)

    def drop_lease(self) -> None:
        self.exchange.drop_lease()

    def complete(self) -> None:
        self.exchange.complete()

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        self.exchange.break_off(is_servers_fault=is_servers_fault)

    def reported(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self._owner.leave(self)

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        if not self._is_uploading:
            return self.exchange.upload_reported(body_bytes, now, is_whole=is_whole)
        self._is_heard = True
        if is_whole:
            self.reported()
        return None  # there is no stream on which it could be ended

    def upload_silent(self) -> None:
        """Time for two reports on its body is over."""
        is_heard, self._is_heard = self._is_heard, False
        goes_on = False
        try:
            goes_on = self._is_awaited and is_heard and self._owner.await_upload(self)
        finally:
            if not goes_on:
                self.reported()

    def check_key(self, now: float) -> None:
        try:
            if self.exchange.check_key(now):
                self._answer()
        except Exception as error:  # noqa: BLE001 - it ends this stream alone
            self._fail(error)

    def end_upload(self, why: str, now: float) -> None:
        self.cancel(now, Reason.UPLOAD_STALLED, why)

    def cancel(self, now: float, reason: Reason = Reason.CANCELLED, text: str = "") -> None:
        """End it for its client: refused where it waits, cut off where it runs."""
        if self.exchange.cancel(now, reason, text):
            self._answer()
