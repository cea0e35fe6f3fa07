"""The body of a request that Envoy sends without waiting for a reply to the headers, and keeps.

    HOLDING --open--> FLOWING

Envoy forwards each part when it has a reply, so those that came before the decision are answered
with it. Nothing is answered before, so that the stream can be opened again at another front.
"""

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.codec import replaced_part, unchanged
from extproc.stream.envoy.duplex_body import DuplexBody


class EarlyBody(DuplexBody):
    """See `DuplexBody`; the parts are a copy, and each is answered once."""

    __slots__ = ("_replacement", "_unanswered")

    def __init__(self) -> None:
        super().__init__("request_body")
        self._unanswered = 0
        self._replacement: bytes | None = None

    def take(self, body: bytes, *, is_last: bool) -> list[pb.ProcessingResponse]:
        """Take one part; returns the reply, if the decision was made before."""
        if self.is_open:
            return [unchanged("request_body")]
        self._unanswered += 1
        return super().take(body, is_last=is_last)

    def replace(self, body: bytes) -> None:
        """Replace the held parts by `body`."""
        self._drop()
        self._replacement = body

    def free(self) -> None:
        """Free the copy: Envoy holds the parts."""
        self._drop()

    def open(self) -> list[pb.ProcessingResponse]:
        """Answer the held and all later parts."""
        count, new = self._unanswered, self._replacement
        self.is_open = True
        self._unanswered = 0
        self._replacement = None
        self._drop()
        if new is None:
            return [unchanged("request_body")] * count
        return [replaced_part(new if number == 0 else b"") for number in range(count)]
