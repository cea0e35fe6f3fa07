"""One HTTP exchange: a state machine that receives Envoy's messages and owns the lease.

    NEW     --headers, takes no slot------> PASSING   any endpoint, no lease
            --headers, body needed--------> READING   decide after the body
            --headers, nothing else needed: decide
            --headers, list of models-----> ANSWERED  by the picker, for the whole fleet
    READING --enough of the body----------: decide
            --half-close by a gateway-----: decide, with the received part
            --response: no body follows---> PASSING   Envoy chose an endpoint by itself
            --an operator cancels---------> REFUSED
    decide  ------------------------------> LEASED    holds a lease; sends the destination
            ------------------------------> WAITING   holds a ticket --settled--> LEASED, REFUSED
            ------------------------------> REFUSED   rejected by the picker
    LEASED, PASSING --an operator cancels-> the same, with a rejection to send
    any     --end-------------------------> ENDED     releases what it holds, exactly once

`body_mode` knows which message of Envoy gets the destination as its reply, `response_feedback`
evaluates the response. The shell feeds it and calls `end` in its `finally`; nothing here blocks.
"""

from typing import Final, assert_never

from extproc.core.address import Address
from extproc.core.client_limits import Exceeded
from extproc.core.constraints import FIRST_TIER, NO_POOL
from extproc.core.decision import Picked, Queued, Settlement
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeSnapshot
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.objective import Objective
from extproc.core.price import FREE
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.takeover import Arrival, HeldLease, Place
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.header_names import CONVERSATION, MODEL, SESSION
from extproc.pb import external_processor_pb2 as pb
from extproc.stream import response_feedback
from extproc.stream.envoy import codec
from extproc.stream.exchange_id import new_id
from extproc.stream.held_slot import HeldSlot
from extproc.stream.limited_request import LimitedRequest
from extproc.stream.options import ExchangeOptions
from extproc.stream.request.reader import (
    InvalidRequest,
    LocalReply,
    NeedsSlot,
    PassThrough,
    ReadResult,
    RequestReader,
)
from extproc.stream.response_state import ResponseState
from extproc.stream.stage import REPLIED, ROUTED, Stage, outcome_at, state_at

__all__ = ["Exchange", "ExchangeError", "ExchangeOptions", "ProtocolError", "Stage"]


class ProtocolError(ValueError):
    """A message of Envoy that is invalid in this state."""


class ExchangeError(Exception):
    """An illegal transition: a bug of the caller."""


class Exchange:
    """Receives the messages of one stream. After each message, `take_reply` returns the replies one
    by one, then None; while `ticket` is not None, the request is queued and there is no reply.
    """

    __slots__ = (
        "_addresses",
        "_began_at",
        "_decided_at",
        "_destination",
        "_dispatcher",
        "_limited",
        "_options",
        "_pick_s",
        "_queued_before",
        "_reader",
        "_reason",
        "_replies",
        "_response",
        "_slot",
        "_spec",
        "_trace_parent",
        "_waited_s",
        "arrival",
        "id",
        "place",
        "stage",
        "ticket",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ExchangeOptions,
        now: float,
        trace_parent: str = "",
        pool: str = NO_POOL,
    ) -> None:
        """`trace_parent` is Envoy's own span; without it the caller's span is used. `pool` is that
        of the port at which Envoy asks, empty if that says none."""
        self._trace_parent = trace_parent
        self._pick_s = 0.0
        self._dispatcher = dispatcher
        self._options = options
        self._began_at = now
        self._reader = RequestReader(dispatcher, options, pool)
        self._slot = HeldSlot(dispatcher)
        self._addresses: tuple[Address, ...] = ()
        self._destination: pb.ProcessingResponse | None = None
        self._spec: EndpointSpec | None = None
        """Of the endpoint that was picked last, which may have left the fleet since."""
        self._response = ResponseState()
        self._reason: Reason | None = None
        self._waited_s = 0.0
        self._decided_at: float | None = None
        self._queued_before: int | None = None
        self._limited: LimitedRequest | None = None
        """If its client has limits."""
        self._replies: tuple[pb.ProcessingResponse, ...] = ()
        self.id = new_id()
        self.place: Place | None = None
        """Its place in the queue, if it was queued by another process."""
        self.arrival: Arrival | None = None
        """When it arrived at Envoy, if it came to a process that stood still."""
        self.stage = Stage.NEW
        self.ticket: Ticket | None = None

    def feed(self, request: pb.ProcessingRequest, now: float) -> None:
        """Handle one message and build the reply; raises `ProtocolError` for an invalid one."""
        if request.observability_mode:
            raise ProtocolError(
                "ext_proc's observability mode does not support routing; disable it, or set "
                "usage.path here as for Envoy's configuration"
            )
        kind = request.WhichOneof("request")
        if kind == "request_headers":
            self._begin(request, now)
        elif kind == "response_headers":
            self._answered(request, now)
        elif kind == "request_body":
            self._take_body(request.request_body, now)
        elif kind == "request_trailers":
            self._take_trailers(now)
        elif kind == "response_body" and self._response.has_body:
            self._say(*self._response.take_body(request.response_body))
        elif kind in _UNCHANGED:
            self._response.is_complete |= kind == "response_trailers"
            self._say(codec.unchanged(kind))
        else:
            raise ProtocolError("an unknown type of message")

    def resume(self, request: pb.ProcessingRequest, held: HeldLease, now: float) -> None:
        """Continue an exchange whose destination another process sent. `request` is its first
        message; there is no reply. If the endpoint is unknown here, it continues without a lease.
        """
        self._response.expect_body(request)
        meant = self._reader.resume(request, held.model)
        self._decided_at = held.opened_at
        self._waited_s = held.waited_s
        addresses = (held.address, *held.fallbacks)
        self._addresses = self._reader.body_mode.nameable(addresses)
        picked = self._dispatcher.adopt(held, meant, now)
        self.stage = Stage.PASSING
        if picked is not None:
            self.stage = Stage.LEASED
            self._take(picked.lease)
            if self._reader.head.conversation:
                self._reader.keeps_conversation(picked.lease)
        self._limited = self._limited_request()
        if self._limited is not None:
            self._limited.adopt(now)

    def held_lease(self) -> HeldLease | None:
        """The lease with which another process could continue it; None before the destination has
        left this one."""
        lease = self._slot.lease
        if lease is None or self._destination is not None:
            return None
        return HeldLease(
            address=lease.address,
            weight_slots=lease.weight_slots,
            asked_slots=lease.asked_slots,
            model=lease.model,
            opened_at=lease.opened_at,
            waited_s=self._waited_s,
            fallbacks=self._addresses[1:],
        )

    def half_close(self, now: float) -> bool:
        """Nothing more will be said. Returns whether there is something to say all the same: an
        Envoy closes its half when its client has gone, others as soon as they have asked."""
        self._response.is_half_closed = self._reader.body_mode.lacks_config
        if not self._response.is_half_closed or self.stage is not Stage.READING:
            return False
        self._act_on(self._reader.read_what_came(), now)
        return True

    @property
    def lease(self) -> Lease | None:
        """The current lease."""
        return self._slot.lease

    @property
    def has_ended(self) -> bool:
        return self.stage is Stage.ENDED

    def drop_lease(self) -> None:
        """Forget the lease, which was closed elsewhere, so that it is not released again."""
        self._slot.lease = None

    @property
    def is_undecided(self) -> bool:
        """Whether the next message may lead to the decision."""
        return self.stage is Stage.NEW or self.stage is Stage.READING

    def decided(self, pick_s: float) -> None:
        """Add to the time that the decision took."""
        self._pick_s += pick_s

    @property
    def has_replies(self) -> bool:
        """Whether `take_reply` has one."""
        return self._replies != ()

    def take_reply(self) -> pb.ProcessingResponse | None:
        """The next reply; it counts as sent from now on."""
        if not self._replies:
            return None
        reply = self._replies[0]
        self._replies = self._replies[1:]
        if reply is self._destination:
            self._destination = None
        return reply

    def settle(self, settlement: Settlement) -> None:
        """The wait is over."""
        match settlement:
            case Picked(lease=lease, waited_s=waited_s):
                self._take(lease)
                self._destination = _UNMADE
                self._waited_s = waited_s
                self.stage = Stage.LEASED
                delivery = self._reader.delivery(settlement)
                self._send_to(
                    delivery.addresses, delivery.body, is_restricted=delivery.is_restricted
                )
            case Rejected(reason=reason, waited_s=waited_s, retry_after_s=retry_after_s):
                self._waited_s = waited_s
                text = settlement.detail or self._reader.rejection_text(reason)
                self._reject(reason, retry_after_s, text)
            case _:
                assert_never(settlement)
        if self._limited is not None:
            self._limited.dequeue()

    def _take(self, lease: Lease) -> None:
        self._slot.take(lease)
        endpoint = self._dispatcher.fleet.get(lease.address)
        self._spec = None if endpoint is None else endpoint.spec

    @property
    def _is_far(self) -> bool:
        """Whether it was sent to another tier than the first."""
        return self._spec is not None and self._spec.is_far

    def _spec_of(self, address: Address | None) -> EndpointSpec | None:
        """What is known of where it was sent; None for a request that took no slot."""
        if address is None or self._spec is None or address == self._spec.address:
            return self._spec
        endpoint = self._dispatcher.fleet.get(address)  # a fallback served
        return self._spec if endpoint is None else endpoint.spec

    def move(self, place: Place, now: float) -> Settlement | None:
        """Queue the request at this place instead of its own. Returns a rejection, if it may not be
        queued any more; it is to be settled."""
        before, request = self.ticket, self._reader.request
        assert before is not None and request is not None
        outcome = self._dispatcher.place(request, place, now)
        self._dispatcher.withdraw(before, now)
        if not isinstance(outcome, Queued):
            return outcome
        self.ticket = outcome.ticket
        return None

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        """Record how much of the body has arrived, and whether that is all. Returns the reason to
        end the exchange, as text for the client; None if it may continue, or is not an upload with
        a slot.
        """
        request = self._reader.request
        if self.stage is not Stage.LEASED or self._response.head is not None or request is None:
            return None
        return self._slot.upload_reported(
            self._options.envoy,
            request,
            body_bytes,
            now,
            is_whole=is_whole,
            is_cancelled=self._response.is_cancelled,
        )

    def cancel(self, now: float, reason: Reason = Reason.CANCELLED, text: str = "") -> bool:
        """Cancel it for an operator; returns whether a reply must be sent at once.

        A queued request is rejected by its ticket, as in any other settlement. Envoy accepts a
        rejection at any time: before the response began it becomes the response, later it cuts it.
        """
        if self.ticket is not None:
            self._dispatcher.cancel(self.ticket, now, reason)
            return False
        if self.stage is Stage.READING:
            self._reject(reason, 0.0, text)
            return True
        if self.stage not in ROUTED or self._response.is_cancelled:
            return False
        self._response.is_cancelled = True
        self._reason = reason
        self._replies = (codec.rejection(reason, 0.0, text, is_plain=self._has_plain_errors),)
        return True

    def check_key(self, now: float) -> bool:
        """Reject the request if its key was revoked before it had a server; returns whether a reply
        must be sent at once."""
        if self.stage not in (Stage.READING, Stage.QUEUED) or not self._reader.is_key_revoked:
            return False
        return self.cancel(now, Reason.INVALID_API_KEY)

    @property
    def client(self) -> str:
        """The name of its client, where keys are checked; else empty."""
        return self._reader.head.client

    def snapshot(self, now: float) -> ExchangeSnapshot:
        """Its snapshot at `now`."""
        ticket = self.ticket if self.stage is Stage.QUEUED else None
        lease = self._slot.lease
        head, request, objective = self._reader.head, self._reader.request, self._objective()
        weight_slots = lease.weight_slots if lease is not None else 0
        endpoint = self._endpoint()
        return ExchangeSnapshot(
            exchange_id=self.id,
            request_id=head.id,
            state=state_at(self.stage, is_answered=self._response.head is not None),
            endpoint=endpoint,
            endpoint_name=self._name_of(endpoint),
            age_s=now - self._began_at,
            waited_s=self._waited_s if ticket is None else now - ticket.entered_at,
            weight_slots=weight_slots if ticket is None else ticket.request.weight_slots,
            ticket=ticket,
            model=(request.model or "") if request is not None else "",
            criticality=objective.criticality.label if objective is not None else "",
            objective=objective.name if objective is not None else "",
            client=head.client,
            pool=self._reader.pool,
        )

    def lose_stream(self) -> None:
        """Its stream was lost, with its connection or by an error, and Envoy may go on without it:
        the request may be on its way to its server, as with a gateway that ends the stream with our
        reply, or its response still flows."""
        self._response.is_half_closed = self._response.is_lost = True

    def complete(self) -> None:
        """Mark the response as complete at its server, as Envoy reported."""
        self._response.is_complete = True

    @property
    def awaits_report(self) -> bool:
        """Whether it holds a lease and only Envoy's report can say how its response ended."""
        return self._slot.lease is not None and self._response.awaits_report

    @property
    def awaits_upload(self) -> bool:
        """Whether its stream was lost while its body may still be on the way to its server, which
        only Envoy's reports say."""
        response = self._response
        return (
            self._slot.lease is not None
            and not self._reader.body_mode.has_all
            and response.is_lost
            and response.head is None
            and not response.is_cancelled
            and not self._is_unsent()
        )

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        """Mark the exchange as cut off, as Envoy reported."""
        self._response.is_broken = True
        self._slot.is_failed = is_servers_fault

    def end(self, now: float) -> ExchangeRecord:
        """End the exchange: release the lease or leave the queue, and return its record.

        Raises `ExchangeError` if it has ended already.
        """
        if self.stage is Stage.ENDED:
            raise ExchangeError(f"exchange {self.id} ended twice")
        stage, ticket, endpoint = self.stage, self.ticket, self._endpoint()
        endpoint_name = self._name_of(endpoint)  # which may leave the fleet with this lease
        spec = self._spec_of(endpoint)
        try:
            first_token_at = self._give_back(now)
        finally:
            if self._limited is not None:
                had_slot = self._slot.opened_at is not None
                self._limited.end(self._slot.draining, now if had_slot else None)
        response = self._response
        is_broken = response.was_cut() and not response.is_handed_over()
        outcome = outcome_at(stage, is_cut=is_broken, is_unsent=self._is_unsent())
        waited_s = self._waited_s if ticket is None else now - ticket.entered_at
        head, request, objective = self._reader.head, self._reader.request, self._objective()
        usage = response.usage()
        return ExchangeRecord(
            exchange_id=self.id,
            request_id=head.id,
            outcome=outcome,
            reason=self._reason,
            endpoint=endpoint,
            status=response.status(self._reason),
            attempts=response.head.attempts if response.head is not None else 0,
            waited_s=waited_s,
            first_token_s=None if first_token_at is None else first_token_at - self._began_at,
            duration_s=now - self._began_at,
            began_at=self._began_at,
            decided_at=self._decided_at,
            pick_s=self._pick_s,
            path=head.path,
            method=head.method,
            model=(request.model or "") if request is not None else "",
            criticality=objective.criticality.label if objective is not None else "",
            trace_parent=self._trace_parent or head.trace_parent,
            endpoint_name=endpoint_name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            client=head.client,
            objective=objective.name if objective is not None else "",
            opened_at=self._slot.opened_at,
            slot_s=self._slot.slot_s(now),
            is_response_read=response.has_body,
            tasks=self._slot.asked_slots,
            tier=FIRST_TIER if spec is None else spec.tier,
            price=FREE if spec is None else spec.price,
            queued_before=self._queued_before,
            is_cold=self._slot.is_cold,
            is_stream=response.head is not None and response.head.is_stream,
            prompt_s=usage.prompt_s,
            generated_s=usage.generated_s,
            seen=self._slot.seen,
            pool=self._reader.pool,
            is_servers_fault=self._slot.is_failed,
            is_overflow=response.is_overflow(),
        )

    def _give_back(self, now: float) -> float | None:
        """Leave the queue, or release the lease, once; returns the time of the first token."""
        ticket = self.ticket
        self.stage, self.ticket = Stage.ENDED, None
        if ticket is not None:
            self._dispatcher.withdraw(ticket, now)
        is_held = self._slot.is_held
        end = LeaseEnd.ABANDONED  # given back even if the code below fails: a scrape shows the slot
        try:
            if is_held:
                end = self._response.lease_end(is_unsent=self._is_unsent())
                if self._response.is_overflow():
                    self._slot.overflowed(now)
        finally:
            first_token_at = self._slot.give_back(self._reader.request, end, now)
        return first_token_at if is_held else self._response.answered_at

    def _is_unsent(self) -> bool:
        """Whether the destination was never sent to Envoy."""
        return self._response.head is None and self._destination is not None

    # The request

    def _begin(self, request: pb.ProcessingRequest, now: float) -> None:
        if self.stage is not Stage.NEW:
            raise ProtocolError("request headers arrived twice")
        result = self._reader.begin(request, now)
        self._response.expect_body(request)
        if result is None:
            self.stage = Stage.READING
            self._say(*self._reader.bring_body())
        else:
            self._act_on(result, now)

    def _take_body(self, part: pb.HttpBody, now: float) -> None:
        if self.stage is Stage.READING:
            result = self._reader.take(part)
            if result is not None:
                self._act_on(result, now)
        elif self.stage not in REPLIED:
            self._say(*self._reader.body_mode.pass_on(part))

    def _take_trailers(self, now: float) -> None:
        if self._response.head is None:
            self.cancel(now, Reason.BAD_REQUEST, TRAILERS)
        elif self.stage not in REPLIED:
            self._say(codec.unchanged("request_trailers"))

    def _act_on(self, result: ReadResult, now: float) -> None:
        self._decided_at = now
        match result:
            case NeedsSlot(request):
                self._submit(request, now)
            case PassThrough(addresses, is_restricted, body):
                self.stage = Stage.PASSING
                self._send_to(addresses, body, is_restricted=is_restricted)
            case LocalReply(body, status, headers):
                self.stage = Stage.ANSWERED
                self._response.answered_status = status
                self._say(codec.immediate_json(body, status, headers))
            case InvalidRequest(reason, text, retry_after_s):
                self._reject(reason, retry_after_s, text)
            case _:
                assert_never(result)

    def _submit(self, request: Request, now: float) -> None:
        limited, full = self._limited_request(), None
        if limited is not None:
            self._limited = limited
            if self.place is not None:
                limited.adopt(now)
            else:
                full = limited.queue_full(now)
                exceeded = limited.begin(now)
                if exceeded is not None:
                    self._reject_over_limit(exceeded)
                    return
        outcome = (
            self._dispatcher.submit(request, now, may_queue=full is None, arrival=self.arrival)
            if self.place is None
            else self._dispatcher.place(request, self.place, now)
        )
        if isinstance(outcome, Queued):
            self.ticket = outcome.ticket
            self.stage = Stage.QUEUED
            if self.place is None:
                self._queued_before = len(self._dispatcher.queue) - 1
            if limited is not None:
                limited.enqueue()
        elif limited is not None and full is not None and _is_over_limit(outcome):
            limited.end()
            self._reject_over_limit(full)
        else:
            self.settle(outcome)

    def _limited_request(self) -> LimitedRequest | None:
        """The request as the limits of its client see it, if it has any."""
        limits, head = self._options.limits, self._reader.head
        if limits.limit_of(head.client) is None:
            return None
        request, reserved = self._reader.request, 0
        if request is not None:
            most = (request.max_tokens or 0) * request.weight_slots
            reserved = request.likely_tokens + most
        return LimitedRequest(limits, head.client, self.id, reserved)

    @property
    def _has_plain_errors(self) -> bool:
        """Whether its client reads errors as those of Ollama's API have them."""
        api = self._options.paths.api_of(self._reader.head.path)
        return api is not None and api.has_plain_errors

    def _reject_over_limit(self, exceeded: Exceeded) -> None:
        self._reason = codec.reason_of(exceeded)
        self.stage = Stage.REJECTED
        self._say(codec.over_limit(exceeded, is_plain=self._has_plain_errors))

    def _send_to(
        self,
        addresses: tuple[Address, ...],
        new_body: bytes | None = None,
        *,
        is_restricted: bool = False,
    ) -> None:
        head = self._reader.head
        self.ticket = None
        body_mode = self._reader.body_mode
        addresses = self._addresses = body_mode.nameable(addresses)
        is_upload = self._slot.lease is not None and not body_mode.has_all
        fallbacks = len(addresses) - 1
        is_bounded = is_restricted or not self._dispatcher.options.fallbacks.limit
        is_bounded = is_bounded and not body_mode.lacks_config
        replies = body_mode.answer(
            addresses,
            self.id,
            self._removed(),
            new_body,
            is_upload=is_upload,
            # After the last fallback Envoy would try any server.
            retries=fallbacks if is_bounded and fallbacks < self._options.envoy.retries else None,
            client="" if self._is_far else head.client,
        )
        self._destination = replies[0]
        self._say(*replies)

    def _removed(self) -> tuple[str, ...]:
        """The headers to remove. The server must not keep a conversation that is not known here."""
        head, lease = self._reader.head, self._slot.lease
        if self._is_far:
            return (*head.controls, *PRIVATE)
        if not head.conversation:
            return head.controls
        if lease is not None and self._reader.keeps_conversation(lease):
            return head.controls
        return (*head.controls, CONVERSATION)

    def _reject(self, reason: Reason, retry_after_s: float, text: str = "") -> None:
        self.ticket = None
        self._reason = reason
        self.stage = Stage.REJECTED
        self._say(codec.rejection(reason, retry_after_s, text, is_plain=self._has_plain_errors))

    # The answer

    def _answered(self, request: pb.ProcessingRequest, now: float) -> None:
        is_unnamed = self.stage is Stage.READING  # Envoy chose by itself: it was not a bypass
        if is_unnamed:
            self.stage = Stage.PASSING
        response = self._response.take_head(request, now)
        meant = self._reader.request
        response_feedback.apply_response(
            self._dispatcher, response, self._addresses, self._slot.lease, now, meant
        )
        lease = self._slot.lease
        if lease is not None and response_feedback.is_finished(response, lease, meant):
            self._addresses = (lease.address,)
            self._slot.finish(now)  # it is free already: let the next request have it
        is_announced = self._options.adds_response_headers and self.stage in ROUTED
        reply = (
            codec.routing_headers(
                self._name_of(response.served),
                round(self._waited_s * 1000),
                response.attempts,
                FIRST_TIER if self._spec is None else self._spec.tier,
            )
            if is_announced
            else codec.unchanged("response_headers")
        )
        if self._limited is not None and is_announced:
            reply = codec.with_headers(reply, self._limited.headers(now))
        if self._slot.lease is not None and response.is_unbounded:
            reply = codec.ask_for_end(reply)
        self._say(codec.name_exchange(reply, self.id) if is_unnamed else reply)

    def _say(self, *replies: pb.ProcessingResponse) -> None:
        self._replies += replies

    # What it is now

    def _objective(self) -> Objective | None:
        request = self._reader.request or self._reader.announced
        if request is None:
            return None
        return self._dispatcher.of_pool(request).objective_of(request)

    def _name_of(self, address: Address | None) -> str:
        return "" if address is None else self._dispatcher.fleet.name_of(address)

    def _endpoint(self) -> Address | None:
        lease = self._slot.lease
        if lease is not None:
            return lease.address
        return self._addresses[0] if self._addresses else None


def _is_over_limit(outcome: Settlement) -> bool:
    """Whether it was rejected because its client may not queue it."""
    return isinstance(outcome, Rejected) and outcome.reason is Reason.RATE_LIMITED


TRAILERS: Final = "Trailers are not supported; send this request without trailers."
PRIVATE: Final = ("x-api-key", "cookie", SESSION, MODEL, CONVERSATION)
"""What a server elsewhere does not get of its client; Envoy sends it its own `authorization`."""
_UNMADE: Final = codec.unchanged("request_headers")
"""A placeholder until the destination is built and sent."""
_UNCHANGED: Final = frozenset({"response_body", "response_trailers"})
