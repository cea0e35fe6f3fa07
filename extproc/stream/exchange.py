"""One HTTP exchange as Envoy tells it: a state machine that is fed messages and owns the lease.

    NEW     --headers, takes no slot------> PASSING   any endpoint, no lease
            --headers, body wanted--------> READING   the body decides
            --headers, nothing more wanted: the decision
            --headers, asks for the models> ANSWERED  by us, for the whole fleet
    READING --enough of the body----------: the decision
            --an answer: no body will come> PASSING   Envoy chose an endpoint by itself
    the decision -------------------------> LEASED    holds a lease; the destination goes out
                 -------------------------> WAITING   holds a ticket --settled--> LEASED, REFUSED
                 -------------------------> REFUSED   answered by us
    LEASED, PASSING --an operator cancels-> the same, with a refusal to write
    any     --end-------------------------> ENDED     gives back what it holds, exactly once

Which of Envoy's questions the destination answers is `question.Question`'s affair; what the
answer tells, `answer`'s. The shell feeds it and calls `end` in its `finally`; nothing here blocks.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, assert_never

from extproc.core.lease import Lease, LeaseEnd
from extproc.core.objective import NO_OBJECTIVE
from extproc.core.outcome import Picked, Queued, Reason, Rejected, Settlement
from extproc.core.record import ExchangeRecord, Verdict
from extproc.core.registry import ExchangeSight, ExchangeState
from extproc.stream import answer, codec
from extproc.stream.adapters import is_object, split_name, with_last_word
from extproc.stream.models import model_list
from extproc.stream.paths import asks_for_models, slot_kind
from extproc.stream.question import Question
from extproc.stream.relay import Relay
from extproc.stream.request import NOT_READ, ReadingOptions, request_of
from extproc.stream.subset import allowed_by, read_subset

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.queue import Ticket
    from extproc.core.request import Kind, Request
    from extproc.pb import external_processor_pb2 as pb
    from extproc.stream.body import RequestBody


class Stage(Enum):
    NEW = "new"
    READING = "reading"
    ANSWERED = "answered"
    PASSING = "passing"
    WAITING = "waiting"
    LEASED = "leased"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions:
    """`queue_timeout_s` is how long a request may wait at most, in seconds; `started_at` the
    Unix time that is shown for models."""

    queue_timeout_s: float = 60.0
    adds_response_headers: bool = True
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    started_at: int = 0


class ProtocolError(ValueError):
    """Envoy said something that this state machine has no answer to."""


class ExchangeError(RuntimeError):
    """A transition that an exchange does not have: a bug of the caller."""


class Exchange:
    """Fed by one stream. After each message `take_reply` gives what to send, one by one, until
    None; while `ticket` is not None the request waits and there is nothing to send yet."""

    __slots__ = (
        "_addresses",
        "_began_at",
        "_destination",
        "_dispatcher",
        "_download",
        "_first_token_at",
        "_head",
        "_is_broken",
        "_is_cancelled",
        "_kind",
        "_lease",
        "_options",
        "_pick_s",
        "_question",
        "_reason",
        "_replies",
        "_request",
        "_response",
        "_subset",
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
        self._kind: Kind | None = None
        self._subset: tuple[str, ...] | None = None
        self._request: Request | None = None
        self._question: Question | None = None
        self._download: Relay | None = None
        self._lease: Lease | None = None
        self._addresses: tuple[Address, ...] = ()
        self._destination: pb.ProcessingResponse | None = None
        self._response: codec.ResponseHead | None = None
        self._reason: Reason | None = None
        self._waited_s = 0.0
        self._first_token_at: float | None = None
        self._is_broken = False
        self._is_cancelled = False
        self._replies: list[pb.ProcessingResponse] = []
        self.id = secrets.token_hex(8)
        self.stage = Stage.NEW
        self.ticket: Ticket | None = None

    def feed(self, request: pb.ProcessingRequest, now: float) -> None:
        """Take in one message and make the reply; raises `ProtocolError` for one without sense."""
        if request.observability_mode:
            raise ProtocolError("nobody can be sent anywhere in observability mode: turn it off")
        kind = request.WhichOneof("request")
        if kind == "request_headers":
            self._begin(request, now)
        elif kind == "response_headers":
            self._answered(request, now)
        elif kind == "request_body":
            self._take_body(request.request_body, now)
        elif kind == "request_trailers":
            self._take_trailers(now)
        elif kind == "response_body" and self._download is not None:
            part = request.response_body
            self._replies += self._download.take(part.body, is_last=part.end_of_stream)
        elif kind in _UNCHANGED:
            self._replies.append(codec.unchanged(kind))
        else:
            raise ProtocolError("a message of a kind that is unknown here")

    @property
    def is_undecided(self) -> bool:
        """Whether the next message may decide about the request."""
        return self.stage is Stage.NEW or self.stage is Stage.READING

    def decided(self, pick_s: float) -> None:
        """Another so much time went into the decision."""
        self._pick_s += pick_s

    def take_reply(self) -> pb.ProcessingResponse | None:
        """The next reply that was not taken yet; from now on it counts as sent."""
        if not self._replies:
            return None
        reply = self._replies.pop(0)
        if reply is self._destination:
            self._destination = None
        return reply

    def settle(self, settlement: Settlement) -> None:
        """The wait is over."""
        match settlement:
            case Picked(lease=lease, waited_s=waited_s):
                self._lease = lease
                self._waited_s = waited_s
                self.stage = Stage.LEASED
                self._send_to(*self._delivery(settlement))
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
        self._replies = [codec.refusal(Reason.CANCELLED, 0.0)]
        return True

    def sight(self, now: float) -> ExchangeSight:
        """What can be told of it at `now`."""
        ticket = self.ticket if self.stage is Stage.WAITING else None
        lease, request = self._lease, self._request
        weight_slots = lease.weight_slots if lease is not None else 0
        return ExchangeSight(
            exchange_id=self.id,
            request_id=self._head.id if self._head is not None else "",
            state=self._state(),
            endpoint=self._endpoint(),
            age_s=now - self._began_at,
            waited_s=self._waited_s if ticket is None else now - ticket.entered_at,
            weight_slots=weight_slots if ticket is None else ticket.request.weight_slots,
            ticket=ticket,
            model=(request.model or "") if request is not None else "",
            criticality=self._class(),
            objective=(request.objective or "") if request is not None else "",
        )

    def break_off(self) -> None:
        """Envoy reported that the exchange did not come to its proper end."""
        self._is_broken = True

    def end(self, now: float) -> ExchangeRecord:
        """The stream is over: give back what is held and tell what became of the exchange.

        Raises `ExchangeError` when it is over already.
        """
        verdict = self._verdict()
        waited_s = self._waited_s if self.ticket is None else now - self.ticket.entered_at
        endpoint = self._endpoint()
        ticket, lease = self.ticket, self._lease
        lease_end = LeaseEnd.ABANDONED if self._may_still_run() else LeaseEnd.SERVED
        self.stage, self.ticket, self._lease = Stage.ENDED, None, None
        if ticket is not None:
            self._dispatcher.withdraw(ticket, now)
        if lease is not None:
            self._dispatcher.release(lease, lease_end, now)
        first_token_at = self._first_token_at
        head, request = self._head, self._request
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
            model=(request.model or "") if request is not None else "",
            criticality=self._class(),
            trace_parent=self._trace_parent or (head.trace_parent if head is not None else ""),
        )

    # The request

    def _begin(self, request: pb.ProcessingRequest, now: float) -> None:
        if self.stage is not Stage.NEW:
            raise ProtocolError("request headers for the second time")
        question = self._question = Question(request)
        if request.protocol_config.response_body_mode == codec.FULL_DUPLEX:
            self._download = Relay("response_body", is_open=True)
        try:
            head = self._head = codec.read_request_head(request.request_headers)
        except codec.BadRequestError as error:
            self._refuse(Reason.BAD_REQUEST, 0.0, str(error))
            return
        self._subset = read_subset(request)
        self._kind = slot_kind(head.method, head.path)
        if self._kind is None:
            if not (asks_for_models(head.method, head.path) and self._answer_models()):
                self._pass()
        elif question.can_bring_body and self._options.reading.wants_body(head):
            self.stage = Stage.READING
            self._replies += question.bring_body()
        else:
            self._decide(NOT_READ, now)

    def _take_body(self, part: pb.HttpBody, now: float) -> None:
        question = self._asked()
        if self.stage is not Stage.READING:
            if self.stage in _TOLD:
                self._replies += question.pass_on(part)
        elif question.take(part, enough_bytes=self._options.reading.limit_bytes):
            self._read(now)

    def _take_trailers(self, now: float) -> None:
        question = self._asked()
        if self.stage is not Stage.READING:
            self._replies += question.pass_on_trailers()
        elif question.take_trailers():
            self._read(now)
        else:
            self._replies += question.pass_on_trailers()

    def _asked(self) -> Question:
        if self._question is None:
            raise ProtocolError("a body before its headers")
        return self._question

    def _read(self, now: float) -> None:
        question, reading = self._asked(), self._options.reading
        assert self._kind is not None
        body = reading.read(self._kind, question.body, is_whole=question.is_whole)
        if reading.is_strict and body.problem is not None:
            self._refuse(Reason.BAD_REQUEST, 0.0, f"The body {body.problem}.")
        else:
            self._decide(body, now)

    # The decision

    def _decide(self, body: RequestBody, now: float) -> None:
        head, kind = self._head, self._kind
        assert head is not None and kind is not None
        allowed = self._allowed()
        if allowed is not None and not allowed:
            self._refuse(Reason.NO_ENDPOINT, NO_SUBSET_RETRY_S)
            return
        intake = self._dispatcher.state.intake
        model, adapter = split_name(body.model, intake.models, intake.adapters)
        longest_s = self._options.queue_timeout_s
        asked_s = head.queue_timeout_s
        request = self._request = request_of(
            head,
            body,
            kind=kind,
            model=model,
            adapter=head.adapter or adapter,
            timeout_s=longest_s if asked_s is None else min(asked_s, longest_s),
            allowed=allowed,
        )
        if request.adapter is not None and (problem := self._why_not_rewritable(body)):
            self._refuse(Reason.BAD_REQUEST, 0.0, problem)
            return
        outcome = self._dispatcher.submit(request, now)
        if isinstance(outcome, Queued):
            self.ticket = outcome.ticket
            self.stage = Stage.WAITING
        else:
            self.settle(outcome)

    def _why_not_rewritable(self, body: RequestBody) -> str | None:
        """Why an adapter cannot be named in this request, None when it can."""
        question = self._asked()
        if body.numbers_adapters:
            return "Name an adapter or give the server's numbers in lora, not both."
        if not question.is_whole:
            return "An adapter can be named only where the whole body is read; this one is not."
        if not is_object(question.body):
            return "An adapter can be named only in a body that is a JSON object."
        return None

    def _delivery(self, picked: Picked) -> tuple[tuple[Address, ...], bytes | None]:
        """Where the request goes, and its body if that must say something else there."""
        request, question = self._request, self._asked()
        assert request is not None
        addresses = (picked.lease.address, *picked.fallbacks)
        if request.adapter is not None:
            # Another server numbers its adapters otherwise: there is no fallback.
            return addresses[:1], with_last_word(
                question.body, model=picked.model, adapter_id=picked.adapter_id
            )
        is_renamed = picked.model is not None and picked.model != request.model
        if is_renamed and question.is_whole and is_object(question.body):
            return addresses, with_last_word(question.body, model=picked.model, adapter_id=None)
        return addresses, None

    def _pass(self) -> None:
        """It takes no slot: let it go to whoever serves."""
        allowed = self._allowed()
        addresses = tuple(self._dispatcher.passing())
        if allowed is not None:
            fleet = self._dispatcher.fleet
            usable = (e.address for e in fleet if e.is_pickable and e.address in allowed)
            addresses = tuple(usable)[: max(1, len(addresses))]
            if not addresses:
                self._refuse(Reason.NO_ENDPOINT, NO_SUBSET_RETRY_S)
                return
        self.stage = Stage.PASSING
        self._send_to(addresses)

    def _answer_models(self) -> bool:
        """Tell which models there are; returns whether any is known."""
        dispatcher, allowed = self._dispatcher, self._allowed()
        endpoints = (
            endpoint
            for endpoint in dispatcher.fleet
            if not endpoint.is_removed and (allowed is None or endpoint.address in allowed)
        )
        names = dispatcher.options.intake.splits
        found = model_list(endpoints, names, self._options.started_at)
        if found is None:
            return False
        self.stage = Stage.ANSWERED
        self._replies.append(codec.ready_answer(found))
        return True

    def _allowed(self) -> frozenset[Address] | None:
        if self._subset is None:
            return None
        fleet = self._dispatcher.fleet
        return allowed_by(self._subset, (e.address for e in fleet if not e.is_removed))

    def _send_to(self, addresses: tuple[Address, ...], new_body: bytes | None = None) -> None:
        assert self._head is not None
        self.ticket = None
        self._addresses = addresses
        replies = self._asked().answer(addresses, self.id, self._head.controls, new_body)
        self._destination = replies[0]
        self._replies += replies

    def _refuse(self, reason: Reason, retry_after_s: float, text: str = "") -> None:
        self.ticket = None
        self._reason = reason
        self.stage = Stage.REFUSED
        self._replies.append(codec.refusal(reason, retry_after_s, text))

    # The answer

    def _answered(self, request: pb.ProcessingRequest, now: float) -> None:
        if self.stage is Stage.READING:
            self.stage = Stage.PASSING
        response = self._response = codec.read_response_head(request)
        if not response.is_local_reply and self._first_token_at is None:
            self._first_token_at = now
        answer.learn(self._dispatcher, response, self._addresses, self._lease, now)
        is_told = self._options.adds_response_headers and self.stage in _TOLD
        added = answer.added_headers(response, self._waited_s) if is_told else ()
        self._replies.append(codec.response_headers(added))

    # What it is now

    def _class(self) -> str:
        if self._request is None:
            return NO_OBJECTIVE.criticality.label
        return self._dispatcher.state.intake.objective_of(self._request).criticality.label

    def _endpoint(self) -> Address | None:
        if self._lease is not None:
            return self._lease.address
        return self._addresses[0] if self._addresses else None

    def _state(self) -> ExchangeState:
        if self.stage is Stage.LEASED:
            return ExchangeState.RUNNING if self._response is None else ExchangeState.ANSWERING
        return _STATES[self.stage]

    def _verdict(self) -> Verdict:
        match self.stage:
            case Stage.PASSING | Stage.NEW | Stage.ANSWERED:
                return Verdict.PASSED
            case Stage.WAITING | Stage.READING:
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
        return self._response is None and self._destination is not None

    def _was_cut(self) -> bool:
        return answer.was_cut(
            self._response, is_broken=self._is_broken, is_cancelled=self._is_cancelled
        )

    def _may_still_run(self) -> bool:
        return not self._is_unsent() and answer.may_still_run(
            self._response, is_cut=self._was_cut()
        )


NO_SUBSET_RETRY_S: Final = 1.0
"""When to ask again after a gateway's hint left nobody: its next one may be newer."""
_UNCHANGED: Final = frozenset({"response_body", "response_trailers"})
_TOLD: Final = (Stage.LEASED, Stage.PASSING)
_STATES: Final = {
    Stage.NEW: ExchangeState.PASSING,
    Stage.READING: ExchangeState.PASSING,
    Stage.PASSING: ExchangeState.PASSING,
    Stage.WAITING: ExchangeState.WAITING,
    Stage.REFUSED: ExchangeState.OVER,
    Stage.ANSWERED: ExchangeState.OVER,
    Stage.ENDED: ExchangeState.OVER,
}
