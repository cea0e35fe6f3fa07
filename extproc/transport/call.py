"""What a service of the data plane's port sees of gRPC: a call, and its handler.

A service adds a function for each of its methods to a `ServiceTable`. The transport calls it for
each new call; it returns the handler. All of this happens in one event loop, and nothing here
waits: there is no task for a call.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]


class Call(Protocol):
    """The transport's side of a call."""

    @property
    def metadata(self) -> Metadata:
        """The headers that the client sent with the call, without HTTP/2's own."""

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""

    @property
    def was_reset(self) -> bool:
        """Whether its client ended it. One that lost it otherwise may go on without it."""

    def send(self, message: bytes) -> None:
        """Send a message. Without effect if the call is over. The transport reads no more of the
        call while the client does not take what was sent."""

    def finish(self, status: int, text: str = "") -> None:
        """End the call with a status code of gRPC. The handler is not called any more."""

    def soon(self, function: Callable[[], None]) -> None:
        """Run a function when the handlers of all messages that arrived have returned. What it
        sends leaves together with what they sent, where the transport can do that."""

    def pause(self) -> None:
        """Keep messages back from the handler, as many as the flow control allows."""

    def resume(self) -> None:
        """Hand over what was kept back, and what follows."""


class CallHandler(Protocol):
    """The service's side of a call. An exception ends the call with INTERNAL."""

    def receive(self, message: bytes) -> None:
        """The next message."""

    def half_closed(self) -> None:
        """The client sends no more messages. Normally the handler finishes the call."""

    def gone(self) -> None:
        """The call ended before it was finished: by the client, its connection or its deadline, or
        by an exception. The last that the handler hears."""


ServeCall: TypeAlias = Callable[[Call], CallHandler]
ServiceTable: TypeAlias = dict[str, ServeCall]
"""What serves the calls of each method, by path: `/package.Service/Method`."""
