"""The response of one exchange, as far as it is known: its headers, its body and how it ended."""

from typing import Final

from extproc.core.rejection import Reason
from extproc.core.slots.lease import LeaseEnd
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.envoy.duplex_body import DuplexBody
from extproc.usage.answer_tail import NO_USAGE, AnswerTail, TokenUsage


class ResponseState:
    """`head` is None until Envoy reports a response, and for one that the picker made."""

    __slots__ = (
        "_body",
        "_tail",
        "answered_at",
        "answered_status",
        "head",
        "is_broken",
        "is_cancelled",
        "is_complete",
        "is_half_closed",
        "is_lost",
    )

    def __init__(self) -> None:
        self.head: codec.ResponseHead | None = None
        self.answered_at: float | None = None
        """When a server's headers arrived."""
        self.answered_status = 0
        """That of a response that the picker made, other than a rejection."""
        self.is_broken = False
        """Whether Envoy reported that it was cut off."""
        self.is_complete = False
        """Whether its server is known to have sent all of it."""
        self.is_cancelled = False
        """Whether an operator cut it off."""
        self.is_half_closed = False
        """Whether nothing more will be said on the stream, and Envoy may go on without it."""
        self.is_lost = False
        """Whether the stream was lost, so that its end says nothing of the response's."""
        self._body: DuplexBody | None = None
        self._tail = _NO_TAIL

    def expect_body(self, request: pb.ProcessingRequest) -> None:
        """Let the body pass, if this first message of the exchange says that it will come."""
        if (
            not request.HasField("protocol_config")
            or request.protocol_config.response_body_mode == codec.FULL_DUPLEX
        ):
            self._body = DuplexBody("response_body", is_open=True)
            self._tail = AnswerTail()

    @property
    def has_body(self) -> bool:
        """Whether the body passes."""
        return self._body is not None

    def take_head(self, request: pb.ProcessingRequest, now: float) -> codec.ResponseHead:
        """Read the headers."""
        head = self.head = codec.read_response_head(request)
        if not head.is_local_reply:
            self.is_complete = not head.is_unbounded
            if self.answered_at is None:
                self.answered_at = now
        return head

    def take_body(self, part: pb.HttpBody) -> list[pb.ProcessingResponse]:
        """Let a part of the body pass, which there must be; returns the messages to send."""
        assert self._body is not None
        self._tail.add(part.body)
        self.is_complete = self.is_complete or part.end_of_stream
        return self._body.take(part.body, is_last=part.end_of_stream)

    @property
    def awaits_report(self) -> bool:
        """Whether Envoy's report alone can say how it ended."""
        head = self.head
        if head is None or not head.is_unbounded or self.is_cancelled or self.is_lost:
            return False
        return not (self.is_complete or self.is_broken)

    def usage(self) -> TokenUsage:
        """The token counts, as far as the body passed."""
        return self._tail.usage() if self.has_body else NO_USAGE

    def is_overflow(self) -> bool:
        """Whether it ended because the context of its server was full, as far as the body passed;
        one without a stream says it with its headers."""
        return self.head is not None and self.head.is_stream and self._tail.is_overflow()

    def status(self, reason: Reason | None) -> int:
        """The status that the client got, as far as it is known, else 0. `reason` is that of a
        rejection."""
        if self.head is not None:
            return self.head.status
        return self.answered_status if reason is None else codec.status_of(reason)

    def was_cut(self) -> bool:
        """Whether the client did not get all of it, as far as Envoy reports it."""
        head = self.head
        if head is None or head.is_local_reply or self.is_cancelled:
            return True
        return head.is_unbounded and self.is_broken

    def is_handed_over(self) -> bool:
        """Whether the stream ended with our reply, as with gateways that are not Envoy."""
        return self.is_half_closed and self.head is None and not self.is_cancelled

    def lease_end(self, *, is_unsent: bool) -> LeaseEnd:
        """How the lease of the request ended. `is_unsent`: it was never on its way to a server."""
        if is_unsent or not self._may_still_run():
            return LeaseEnd.SERVED
        return LeaseEnd.HANDED_OVER if self.is_handed_over() else LeaseEnd.ABANDONED

    def _may_still_run(self) -> bool:
        """Whether the server may still process a request whose stream has ended.

        It may until the end of its response is proved: by headers that say the length, as
        llama-server sends them when it has finished; by the last part of the body; or by Envoy's
        report. What could not be connected was never there.
        """
        if self.head is not None and "connection_failure" in self.head.code_details:
            return False
        return not self.is_complete or self.is_cancelled or self.is_lost


_NO_TAIL: Final = AnswerTail()
"""Of a response whose body does not pass; nothing is added to it."""
