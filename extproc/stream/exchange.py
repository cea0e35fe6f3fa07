"""One HTTP exchange as Envoy tells it: a state machine that is fed messages and owns the lease.

    NEW --request headers--> PASSING   takes no slot: any endpoint, no lease
                         --> WAITING   holds a ticket --settled--> LEASED or REFUSED
                         --> LEASED    holds a lease
                         --> REFUSED   answered by us
    any --end--> ENDED   gives back what it holds, exactly once

The shell feeds it and calls `end` in its `finally`; nothing here blocks.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, assert_never

from extproc.core.lease import Lease, LeaseEnd
from extproc.core.outcome import Picked, Queued, Reason, Rejected, Settlement
from extproc.core.record import ExchangeRecord, Verdict
from extproc.core.registry import ExchangeSight, ExchangeState
from extproc.core.request import Request
from extproc.stream import codec
from extproc.stream.paths import takes_slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extproc.core.address import Address
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.queue import Ticket
    from extproc.pb import external_processor_pb2 as pb


class Stage(Enum):
    NEW = "new"
    PASSING = "passing"
    WAITING = "waiting"
    LEASED = "leased"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions:
    """`queue_timeout_s` is how long a request may wait at most, in seconds."""

    queue_timeout_s: float = 60.0
    adds_response_headers: bool = True


class ProtocolError(ValueError):
    """Envoy said something that this state machine has no answer to."""


class ExchangeError(RuntimeError):
    """A transition that an exchange does not have: a bug of the caller."""


_UNCHANGED: Final = frozenset(
    {"request_body", "response_body", "request_trailers", "response_trailers"}
)


class Exchange:
    """Fed by one stream. After each message `take_reply` gives what to send, if anything;
    while `ticket` is not None the request waits and there is nothing to send yet."""

    __slots__ = (
        "_addresses",
        "_began_at",
        "_dispatcher",
        "_first_token_at",
        "_head",
        "_is_broken",
        "_is_cancelled",
        "_lease",
        "_options",
        "_pick_s",
        "_reason",
        "_reply",
        "_response",
        "_trace_parent",
        "_waited_s",
        "id",
        "stage",
        "ticket",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ExchangeOptions,
        now: float,
        trace_parent: str = "",
    ) -> None:
        """`trace_parent` is Envoy's own span; without it the caller's counts."""
        self._trace_parent = trace_parent
        self._pick_s = 0.0
        self._dispatcher = dispatcher
        self._options = options
        self._began_at = now
        self._head: codec.RequestHead | None = None
        self._lease: Lease | None = None
        self._addresses: tuple[Address, ...] = ()
        self._response: codec.ResponseHead | None = None
        self._reason: Reason | None = None
        self._waited_s = 0.0
        self._first_token_at: float | None = None
        self._is_broken = False
        self._is_cancelled = False
        self.id = secrets.token_hex(8)
        self.stage = Stage.NEW
        self.ticket: Ticket | None = None
        self._reply: pb.ProcessingResponse | None = None

    def feed(self, request: pb.ProcessingRequest, now: float) -> None:
        """Take in one message and make the reply; raises `ProtocolError` for one without sense."""
        if request.observability_mode:
            raise ProtocolError("nobody can be sent anywhere in observability mode: turn it off")
        kind = request.WhichOneof("request")
        if kind == "request_headers":
            self._begin(request.request_headers, now)
        elif kind == "response_headers":
            self._answered(request, now)
        elif kind in _UNCHANGED:
            self._reply = codec.unchanged(kind)
        else:
            raise ProtocolError("a message of a kind that is unknown here")

    def decided(self, pick_s: float) -> None:
        """The answer to the request, or that it waits, took so long to find."""
        self._pick_s = pick_s

    def take_reply(self) -> pb.ProcessingResponse | None:
        """The reply that was not taken yet; from now on it counts as sent."""
        reply, self._reply = self._reply, None
        return reply

    def settle(self, settlement: Settlement) -> None:
        """The wait is over."""
        match settlement:
            case Picked(lease=lease, fallbacks=fallbacks, waited_s=waited_s):
                self._lease = lease
                self._waited_s = waited_s
                self.stage = Stage.LEASED
                self._send_to((lease.address, *fallbacks))
            case Rejected(reason=reason, waited_s=waited_s, retry_after_s=retry_after_s):
                self._waited_s = waited_s
                self._refuse(reason, retry_after_s)
            case _:
                assert_never(settlement)

    def cancel(self, now: float) -> bool:
        """An operator ends it; returns whether a reply is left that must be written at once.

        A waiting one is refused by way of its ticket, as any other settlement. Envoy takes a
        refusal at any time: before the answer began it becomes the answer, later it cuts it.
        """
        if self.ticket is not None:
            self._dispatcher.cancel(self.ticket, now)
            return False
        if self.stage not in _TOLD or self._is_cancelled:
            return False
        self._is_cancelled = True
        self._reason = Reason.CANCELLED
        self._reply = codec.refusal(Reason.CANCELLED, 0.0)
        return True

    def sight(self, now: float) -> ExchangeSight:
        """What can be told of it at `now`."""
        ticket = self.ticket if self.stage is Stage.WAITING else None
        lease = self._lease
        endpoint = lease.address if lease is not None else None
        if lease is None and self._addresses:
            endpoint = self._addresses[0]
        weight_slots = lease.weight_slots if lease is not None else 0
        return ExchangeSight(
            exchange_id=self.id,
            request_id=self._head.id if self._head is not None else "",
            state=self._state(),
            endpoint=endpoint,
            age_s=now - self._began_at,
            waited_s=self._waited_s if ticket is None else now - ticket.entered_at,
            weight_slots=weight_slots if ticket is None else ticket.request.weight_slots,
            ticket_id=None if ticket is None else ticket.id,
        )

    def _state(self) -> ExchangeState:
        if self.stage is Stage.LEASED:
            return ExchangeState.RUNNING if self._response is None else ExchangeState.ANSWERING
        return _STATES[self.stage]

    def break_off(self) -> None:
        """Envoy reported that the exchange did not come to its proper end."""
        self._is_broken = True

    def end(self, now: float) -> ExchangeRecord:
        """The stream is over: give back what is held and tell what became of the exchange.

        Raises `ExchangeError` when it is over already.
        """
        verdict = self._verdict()
        waited_s = self._waited_s if self.ticket is None else now - self.ticket.entered_at
        endpoint = self._lease.address if self._lease is not None else None
        if endpoint is None and self._addresses:
            endpoint = self._addresses[0]
        ticket, lease = self.ticket, self._lease
        lease_end = LeaseEnd.ABANDONED if self._may_still_run() else LeaseEnd.SERVED
        self.stage, self.ticket, self._lease = Stage.ENDED, None, None
        if ticket is not None:
            self._dispatcher.withdraw(ticket, now)
        if lease is not None:
            self._dispatcher.release(lease, lease_end, now)
        first_token_at = self._first_token_at
        head = self._head
        return ExchangeRecord(
            exchange_id=self.id,
            request_id=head.id if head is not None else "",
            verdict=verdict,
            reason=self._reason,
            endpoint=endpoint,
            status=self._response.status if self._response is not None else 0,
            attempts=self._response.attempts if self._response is not None else 0,
            waited_s=waited_s,
            first_token_s=None if first_token_at is None else first_token_at - self._began_at,
            duration_s=now - self._began_at,
            began_at=self._began_at,
            pick_s=self._pick_s,
            path=head.path if head is not None else "",
            trace_parent=self._trace_parent or (head.trace_parent if head is not None else ""),
        )

    # The request

    def _begin(self, headers: pb.HttpHeaders, now: float) -> None:
        if self.stage is not Stage.NEW:
            raise ProtocolError("request headers for the second time")
        try:
            head = self._head = codec.read_request_head(headers)
        except codec.BadRequestError as error:
            self._refuse(Reason.BAD_REQUEST, 0.0, str(error))
            return
        if not takes_slot(head.method, head.path):
            self.stage = Stage.PASSING
            self._send_to(tuple(self._dispatcher.passing()))
            return
        longest_s = self._options.queue_timeout_s
        asked_s = head.queue_timeout_s
        timeout_s = longest_s if asked_s is None else min(asked_s, longest_s)
        outcome = self._dispatcher.submit(Request(id=head.id, timeout_s=timeout_s), now)
        if isinstance(outcome, Queued):
            self.ticket = outcome.ticket
            self.stage = Stage.WAITING
            self._reply = None
        else:
            self.settle(outcome)

    def _send_to(self, addresses: tuple[Address, ...]) -> None:
        self.ticket = None
        self._addresses = addresses
        self._reply = codec.destination(addresses, self.id)

    def _refuse(self, reason: Reason, retry_after_s: float, text: str = "") -> None:
        self.ticket = None
        self._reason = reason
        self.stage = Stage.REFUSED
        self._reply = codec.refusal(reason, retry_after_s, text)

    # The answer

    def _answered(self, request: pb.ProcessingRequest, now: float) -> None:
        response = self._response = codec.read_response_head(request)
        if response.is_local_reply:
            self._learn_from_failure(response, now)
        else:
            if self._first_token_at is None:
                self._first_token_at = now
            if response.served is not None:
                self._learn_who_served(response.served, response.attempts, now)
        self._reply = codec.response_headers(self._added_headers(response))

    def _learn_who_served(self, served: Address, attempts: int, now: float) -> None:
        """A retry means that those before `served` in the list could not be reached."""
        if attempts > 1:
            for address in self._addresses[: attempts - 1]:
                if address != served:
                    self._dispatcher.connect_failed(address, now)
        if self._lease is not None:
            self._dispatcher.served_by(self._lease, served, now)

    def _learn_from_failure(self, response: codec.ResponseHead, now: float) -> None:
        """Envoy answered itself: a connection that failed tells of its endpoint."""
        if "connection_failure" in response.code_details:
            for address in self._addresses[: response.attempts]:
                self._dispatcher.connect_failed(address, now)

    def _added_headers(self, response: codec.ResponseHead) -> Iterator[tuple[str, str]]:
        if not self._options.adds_response_headers or self.stage not in _TOLD:
            return
        if response.served is not None:
            yield "x-coxswain-endpoint", str(response.served)
        yield "x-coxswain-queue-ms", str(round(self._waited_s * 1000))
        yield "x-coxswain-attempts", str(response.attempts)

    def _verdict(self) -> Verdict:
        match self.stage:
            case Stage.PASSING | Stage.NEW:
                return Verdict.PASSED
            case Stage.WAITING:
                return Verdict.WITHDRAWN
            case Stage.REFUSED:
                return Verdict.REJECTED
            case Stage.LEASED:
                if self._is_unsent():
                    return Verdict.WITHDRAWN
                return Verdict.BROKEN if self._was_cut() else Verdict.SERVED
            case Stage.ENDED:
                raise ExchangeError(f"exchange {self.id} ended twice")
            case _:
                assert_never(self.stage)

    def _is_unsent(self) -> bool:
        """Whether the destination never left this process."""
        return self._response is None and self._reply is not None

    def _was_cut(self) -> bool:
        """Whether the client did not get a server's whole answer, as far as Envoy tells."""
        response = self._response
        if response is None or response.is_local_reply or self._is_cancelled:
            return True
        return response.is_stream and self._is_broken

    def _may_still_run(self) -> bool:
        """Whether the server may still be at work on it.

        llama-server sends the headers of an ordinary answer when it has finished, so only an
        event stream that Envoy reported, or an answer that never came, leaves it working. What
        could not be connected was never there.
        """
        response = self._response
        if response is not None and "connection_failure" in response.code_details:
            return False
        return self._was_cut() and not self._is_unsent()


_TOLD: Final = frozenset({Stage.LEASED, Stage.PASSING})
_STATES: Final = {
    Stage.NEW: ExchangeState.PASSING,
    Stage.PASSING: ExchangeState.PASSING,
    Stage.WAITING: ExchangeState.WAITING,
    Stage.REFUSED: ExchangeState.OVER,
    Stage.ENDED: ExchangeState.OVER,
}
