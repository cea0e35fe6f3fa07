"""What the discovery streams of one Envoy have in common."""

import logging
from abc import ABC, abstractmethod
from typing import Final

from google.protobuf.message import DecodeError

from extproc.pb.base_pb2 import ControlPlane
from extproc.pb.discovery_pb2 import DiscoveryRequest
from extproc.transport import Call
from extproc.transport.status import INVALID_ARGUMENT, OK
from extproc.xds.capabilities import read_capabilities
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
MAX_ERROR_CHARS = 500
MAX_SHOWN_NAMES = 3
NO_MESSAGE: Final = "not a valid DiscoveryRequest"


class DiscoveryStream(ABC):
    """One Envoy's stream: the handler of its call."""

    def __init__(self, call: Call, subscription: Subscription) -> None:
        self.call = call
        self.subscription = subscription
        self.abilities = read_capabilities(call.metadata)
        self.node_id = ""

    @abstractmethod
    def heard(self, event: Acknowledged | Refused | None) -> None:
        """The subscription took in a question, which meant this."""

    @abstractmethod
    def forget(self) -> None:
        """The stream has ended. Called once."""

    def receive(self, message: bytes) -> None:
        try:
            request = DiscoveryRequest.FromString(message)
            self.node_id = self.node_id or node_of(request)
            self.heard(self.subscription.ask(question(request)))
        except (DecodeError, SubscriptionError) as error:
            fault = NO_MESSAGE if isinstance(error, DecodeError) else str(error)
            log.warning("discovery rejected Envoy %r: %s", self.node_id, fault)
            self.end(INVALID_ARGUMENT, fault)

    def half_closed(self) -> None:
        self.end()

    def gone(self) -> None:
        self.forget()

    def end(self, status: int = OK, text: str = "") -> None:
        """End the stream from this side; without effect if it has ended."""
        if not self.call.is_over:
            self.call.finish(status, text)
            self.forget()


def node_of(message: DiscoveryRequest) -> str:
    """How the Envoy calls itself, in a length that a log line bears."""
    return message.node.id[:MAX_NODE_ID_CHARS]


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
