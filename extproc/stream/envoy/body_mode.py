"""How Envoy asks about one request, and with which of its questions the answer goes out.

    headers alone    the answer is the one about the headers
    body asked for   Envoy holds the headers back; the answer is the one about the body
    full duplex      there is no question: the answer about the headers is deferred, what came
                     of the body is held here, and both go out together, then the rest flows
    no word of it    a gateway that is no Envoy: as full duplex. It may close its half at once,
                     reads the first address alone, and need not tell what the server answered

In the last three the body can be replaced, as long as all of it is here.

Trailers are the exception to all of it. Envoy 1.40 lets go of a body that came in pieces, keeps
it for a further try, and lets go of all it keeps once more on our word about the trailers: the
server would get it twice. So a body is asked for whole where it is told to be short, a body that
is here goes out with the headers, and what went on in pieces may have no trailers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.stream.envoy import codec
from extproc.stream.envoy.duplex_body import DuplexBody

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.pb import external_processor_pb2 as pb


class BodyMode:
    """What Envoy asked last; `body` is what is here of the body while it is undecided."""

    __slots__ = (
        "_can_ask",
        "_comes_in_pieces",
        "_has_body",
        "_kind",
        "_owes_trailers",
        "_upload",
        "body",
        "is_whole",
        "lacks_config",
        "must_be_answered",
    )

    def __init__(self) -> None:
        self._kind = "request_headers"
        self._can_ask = False
        self._has_body = False
        self._comes_in_pieces = False
        self._upload: DuplexBody | None = None
        self._owes_trailers = False
        self.body = b""
        self.is_whole = False
        self.lacks_config = False
        """Whether the first message had no `protocol_config`, which each Envoy sends."""
        self.must_be_answered = False
        """Whether a gateway asks, which may know nobody to go to unless it is told."""

    def begin(self, message: pb.ProcessingRequest) -> None:
        """Learn from the first message of a stream how the body will come."""
        self.lacks_config = not message.HasField("protocol_config")
        mode = codec.FULL_DUPLEX if self.lacks_config else message.protocol_config.request_body_mode
        self.must_be_answered = mode == codec.FULL_DUPLEX
        self._has_body = not message.request_headers.end_of_stream
        if not self._has_body:
            return
        self._can_ask = mode in codec.READABLE_MODES
        if mode == codec.FULL_DUPLEX:
            self._upload = DuplexBody("request_body")

    @property
    def can_bring_body(self) -> bool:
        """Whether a body follows that can be read before the decision."""
        return self._can_ask

    @property
    def has_all(self) -> bool:
        """Whether nothing more of the request is to come."""
        return self.is_whole or not self._has_body

    def bring_body(self, *, is_short: bool) -> list[pb.ProcessingResponse]:
        """Have the body sent, if it does not come anyway; all of it if it is told to be short."""
        if self._upload is not None:
            return []
        self._comes_in_pieces = not is_short
        return [codec.ask_for_body(is_whole=is_short)]

    def take(self, part: pb.HttpBody, *, enough_bytes: int) -> bool:
        """Take in what came of the body before the decision; returns whether it is enough."""
        if self._upload is None:
            self._kind = "request_body"
            self.body, self.is_whole = part.body, part.end_of_stream
            return True
        self._upload.take(part.body, is_last=part.end_of_stream)
        return self._is_enough(enough_bytes)

    def take_trailers(self) -> bool:
        """Trailers came before the decision: they end the body. Returns whether it is here."""
        if self._upload is None:
            return False
        self._upload.end_by_trailers()
        self._owes_trailers = True
        return self._is_enough(0)

    def _is_enough(self, enough_bytes: int) -> bool:
        assert self._upload is not None
        if not self._upload.has_end and self._upload.held_bytes < enough_bytes:
            return False
        self.body, self.is_whole = self._upload.held(), self._upload.has_end
        return True

    def end_body(self) -> None:
        """No more of the body will come, though its end was not told."""
        assert self._upload is not None
        self._upload.take(b"", is_last=True)
        self.body = self._upload.held()
        self._has_body = False

    def nameable(self, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
        """Those of the list that can be told: only Envoys are known to walk one."""
        return addresses[:1] if self.lacks_config else addresses

    def forget_body(self) -> None:
        """It was read and stays as it is: a thousand that wait would keep gigabytes here."""
        self.body = b""

    def pass_on(self, part: pb.HttpBody) -> list[pb.ProcessingResponse]:
        """What came of the body after the decision goes its way."""
        if self._upload is None:
            return [codec.unchanged("request_body")]
        return self._upload.take(part.body, is_last=part.end_of_stream)

    @property
    def must_refuse_trailers(self) -> bool:
        """Whether a word about trailers would send the server the body for the second time."""
        if self._upload is not None:
            return self._upload.has_flowed
        return self._comes_in_pieces and self._kind == "request_body"

    def pass_on_trailers(self) -> list[pb.ProcessingResponse]:
        """The trailers came after the decision."""
        if self._upload is not None:
            self._upload.end_by_trailers()
        return [codec.unchanged("request_trailers")]

    def answer(
        self,
        addresses: tuple[Address, ...],
        exchange_id: str,
        removed: tuple[str, ...],
        new_body: bytes | None = None,
        *,
        is_upload: bool = False,
    ) -> list[pb.ProcessingResponse]:
        """The decision, then all that was held back for it; `new_body` replaces the whole.
        `is_upload` has Envoy report how the rest of the body comes."""
        decision = codec.destination(
            addresses, exchange_id, kind=self._kind, removed=removed, is_upload=is_upload
        )
        replies = [decision]
        if self._upload is not None:
            if new_body is not None:
                self._upload.replace(new_body)
            if self._owes_trailers and (whole := self._upload.held()):
                codec.send_whole(decision, whole)
                self._upload = None
                return replies
            replies += self._upload.open()
            if self._owes_trailers:
                replies.append(codec.unchanged("request_trailers"))
        elif new_body is not None:
            codec.replace_body(decision, new_body)
        self.body = b""
        return replies
