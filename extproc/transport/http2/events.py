"""What a connection's bytes mean for its streams."""

from extproc.transport.http2.request_headers import RequestHeaders
from extproc.transport.http2.stream import Stream


class Event:
    """Something happened to `stream`."""

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        self.stream = stream


class StreamOpened(Event):
    """A request began."""

    __slots__ = ("headers",)

    def __init__(self, stream: Stream, headers: RequestHeaders) -> None:
        super().__init__(stream)
        self.headers = headers


class DataReceived(Event):
    """Bytes of a request; the application owes `stream.consumed` for them."""

    __slots__ = ("data",)

    def __init__(self, stream: Stream, data: bytes) -> None:
        super().__init__(stream)
        self.data = data


class HalfClosed(Event):
    """The request is complete."""

    __slots__ = ()


class StreamReset(Event):
    """The stream ended early: the peer reset it, or broke a rule on it. It is closed already."""

    __slots__ = ()
