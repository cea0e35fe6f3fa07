"""What both discovery services and their streams have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from extproc.pb.base_pb2 import ControlPlane
from extproc.pb.discovery_pb2 import DiscoveryRequest
from extproc.transport import Call, ServiceTable
from extproc.transport.status import INVALID_ARGUMENT, OK
from extproc.xds.capabilities import read_capabilities
from extproc.xds.gate import Gate
from extproc.xds.subscription import (
    Acknowledged,
    Question,
    Refused,
    Subscription,
    SubscriptionError,
)

log = logging.getLogger("coxswain.xds")

CONTROL_PLANE = ControlPlane(identifier="coxswain")
MAX_NODE_ID_CHARS = 100
"""Of how an Envoy calls itself: a length that a log line bears."""
MAX_ERROR_CHARS = 500
MAX_SHOWN_NAMES = 3
NO_MESSAGE: Final = "not a valid DiscoveryRequest"


StreamT = TypeVar("StreamT", bound="DiscoveryStream")


class DiscoveryService(ABC, Generic[StreamT]):
    """Serves one kind of discovery. Nobody is answered before the `gate` is open."""

    def __init__(self, path: str, gate: Gate) -> None:
        self.gate = gate
        """Shared with everything else that sends the fleet to Envoy."""
        self._path = path
        self._streams: dict[StreamT, None] = {}
        self._is_closed = False

    @abstractmethod
    def new_stream(self, call: Call) -> StreamT:
        """The handler of a call."""

    @abstractmethod
    def heard(self, stream: StreamT, event: Acknowledged | Refused | None) -> None:
        """The stream's Envoy asked for names, or took a version over or not."""

    def add_to(self, table: ServiceTable) -> None:
        """Serve this kind of discovery."""
        table[self._path] = self._open_stream

    def close(self) -> None:
        """End every stream, and every later one at once: the server goes down."""
        self._is_closed = True
        self.gate.close()
        for stream in list(self._streams):
            stream.end()

    def forget(self, stream: StreamT) -> None:
        """The stream has ended. Called once."""
        del self._streams[stream]

    def _open_stream(self, call: Call) -> StreamT:
        """One Envoy's stream; ends when either side leaves."""
        stream = self.new_stream(call)
        self._streams[stream] = None
        if self._is_closed:
            stream.end()
        else:
            self.gate.wait()
        return stream


class DiscoveryStream:
    """One Envoy's stream: the handler of its call."""

    def __init__(
        self, call: Call, subscription: Subscription, service: DiscoveryService[Any]
    ) -> None:
        self.call = call
        self._service = service
        self.subscription = subscription
        self.abilities = read_capabilities(call.metadata)
        self.node_id = ""

    def receive(self, message: bytes) -> None:
        try:
            request = DiscoveryRequest.FromString(message)
            self.node_id = self.node_id or request.node.id[:MAX_NODE_ID_CHARS]
            self._service.heard(self, self.subscription.ask(question(request)))
        except (DecodeError, SubscriptionError) as error:
            fault = NO_MESSAGE if isinstance(error, DecodeError) else str(error)
            log.warning("discovery rejected Envoy %r: %s", self.node_id, fault)
            self.end(INVALID_ARGUMENT, fault)

    def half_closed(self) -> None:
        self.end()

    def gone(self) -> None:
        self._service.forget(self)

    def end(self, status: int = OK, text: str = "") -> None:
        """End the stream from this side; without effect if it has ended."""
        if not self.call.is_over:
            self.call.finish(status, text)
            self._service.forget(self)


def question(message: DiscoveryRequest) -> Question:
    """Its message."""
    return Question(
        names=tuple(message.resource_names),
        nonce=message.response_nonce,
        type_url=message.type_url,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )


def in_short(error: str) -> str:
    """Envoy's reason for a rejection, on one line that no terminal obeys."""
    line = " ".join(error.split())[:MAX_ERROR_CHARS]
    return line if line.isprintable() else repr(line)


def some_of(names: tuple[str, ...]) -> str:
    """The first few names, in a length that a log line bears."""
    more = len(names) - MAX_SHOWN_NAMES
    shown = ", ".join(map(repr, names[:MAX_SHOWN_NAMES]))
    return shown if more <= 0 else f"{shown} and {more} more"
