"""How Envoy sends the body of one request, and which message gets the destination as its reply.

    headers only      the reply to the headers
    body requested    Envoy holds the headers; the reply to the body
    sent early        Envoy keeps the headers and each part until they are answered, and sends
                      the body without waiting for that: the reply to the headers is deferred,
                      the received part is copied, all is answered together, then each part
    full duplex       no message waits for a reply: the reply to the headers is deferred, the
                      received part of the body is held, both are sent together, the rest flows
    not declared      a gateway that is not Envoy: as full duplex. It may half-close at once, uses
                      only the first address, and need not report the response

In the last four the body can be replaced while all of it is held.

Trailers are rejected. Envoy 1.40 releases a body that arrived in pieces, keeps it for a retry, and
releases all of it again after a reply about the trailers: the server would get it twice. A body
whose declared length is short is requested completely; Envoy keeps its trailers to itself.
"""

from extproc.core.address import Address
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.envoy.duplex_body import DuplexBody
from extproc.stream.envoy.early_body import EarlyBody


class BodyMode:
    """The state of one request; `body` is the received part of the body before the decision."""

    __slots__ = (
        "_decompressed",
        "_has_body",
        "_kind",
        "_upload",
        "body",
        "can_bring_body",
        "is_whole",
        "lacks_config",
        "must_be_answered",
    )

    def __init__(self) -> None:
        self._kind = "request_headers"
        self.can_bring_body = False
        """Whether a body follows that can be read before the decision."""
        self._has_body = False
        self._decompressed: bytes | None = None
        self._upload: DuplexBody | None = None
        self.body = b""
        self.is_whole = False
        self.lacks_config = False
        """Whether the first message had no `protocol_config`, which every Envoy sends."""
        self.must_be_answered = False
        """Whether the caller is a gateway, which may know no endpoint by itself."""

    def begin(self, message: pb.ProcessingRequest) -> None:
        """Read the body mode from the first message of a stream."""
        self.lacks_config = not message.HasField("protocol_config")
        mode = codec.FULL_DUPLEX if self.lacks_config else message.protocol_config.request_body_mode
        self.must_be_answered = mode == codec.FULL_DUPLEX
        self._has_body = not message.request_headers.end_of_stream
        if not self._has_body:
            return
        self.can_bring_body = mode in codec.READABLE_MODES
        if mode == codec.FULL_DUPLEX:
            self._upload = DuplexBody("request_body")
        elif mode == codec.STREAMED and _is_sent_early(message):
            self.can_bring_body = True
            self._upload = EarlyBody()

    @property
    def has_all(self) -> bool:
        """Whether the request is complete."""
        return self.is_whole or not self._has_body

    def bring_body(self, *, is_short: bool) -> list[pb.ProcessingResponse]:
        """Ask for the body if it is not sent anyway; for all of it if its length is short."""
        if self._upload is not None:
            return []
        return [codec.ask_for_body(is_whole=is_short)]

    def take(self, part: pb.HttpBody, *, enough_bytes: int) -> bool:
        """Take a part of the body before the decision; returns whether it is enough."""
        if self._upload is None:
            self._kind = "request_body"
            self.body, self.is_whole = part.body, part.end_of_stream
            return True
        self._upload.take(part.body, is_last=part.end_of_stream)
        if not self._upload.has_end and self._upload.held_bytes < enough_bytes:
            return False
        self.body, self.is_whole = self._upload.held(), self._upload.has_end
        return True

    def decompress(self, body: bytes) -> None:
        """Replace the body, all of which is here, by what it holds."""
        self.body = body
        if self._upload is None:
            self._decompressed = body
        else:
            self._upload.replace(body)

    def end_body(self) -> None:
        """No more of the body will arrive, although its end was not announced."""
        assert self._upload is not None
        self._upload.take(b"", is_last=True)
        self.body = self._upload.held()
        self._has_body = False

    def nameable(self, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
        """The addresses that can be sent: only Envoys are known to use a list of fallbacks."""
        return addresses[:1] if self.lacks_config else addresses

    def resume(self) -> None:
        """The destination was sent by another process: the rest of the body passes."""
        if self._upload is not None:
            self._upload.open()

    def forget_body(self) -> None:
        """Free the body that has been read: a thousand queued requests would hold gigabytes. One
        that was decompressed is needed."""
        self.body = b""
        if self._upload is not None:
            self._upload.free()

    def pass_on(self, part: pb.HttpBody) -> list[pb.ProcessingResponse]:
        """Pass through a part of the body after the decision."""
        if self._upload is None:
            return [codec.unchanged("request_body")]
        return self._upload.take(part.body, is_last=part.end_of_stream)

    def answer(
        self,
        addresses: tuple[Address, ...],
        exchange_id: str,
        removed: tuple[str, ...],
        new_body: bytes | None = None,
        *,
        is_upload: bool = False,
        retries: int | None = None,
        client: str = "",
    ) -> list[pb.ProcessingResponse]:
        """The decision, then the held parts of the body; `new_body` replaces all of it. With
        `is_upload`, Envoy reports the progress of the rest of the body. `retries` bounds Envoy's.
        `client` is the name that the server is shown.
        """
        decision = codec.destination(
            addresses,
            exchange_id,
            kind=self._kind,
            removed=removed,
            is_upload=is_upload,
            retries=retries,
            client=client,
        )
        replies = [decision]
        if self._upload is not None:
            if new_body is not None:
                self._upload.replace(new_body)
            replies += self._upload.open()
        elif new_body is not None or self._decompressed is not None:
            codec.replace_body(decision, new_body or self._decompressed or b"")
        self.body = b""
        self._decompressed = None
        return replies


def _is_sent_early(message: pb.ProcessingRequest) -> bool:
    return message.protocol_config.send_body_without_waiting_for_header_response
