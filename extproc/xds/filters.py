"""The extension config discovery service: sends every Envoy the configuration of one HTTP filter,
that which checks the keys of clients, and again whenever it changes."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from google.protobuf.any_pb2 import Any

from extproc.pb.discovery_pb2 import DiscoveryResponse
from extproc.xds.stream import CONTROL_PLANE, DiscoveryStream, in_short
from extproc.xds.subscription import FILTER_TYPE, Acknowledged, Refused, Subscription

if TYPE_CHECKING:
    from extproc.transport import Call, ServiceTable

STREAM_FILTERS: Final = (
    "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/StreamExtensionConfigs"
)

log = logging.getLogger("coxswain.xds")


class _Stream(DiscoveryStream):
    def __init__(self, call: Call, discovery: FilterDiscovery) -> None:
        super().__init__(call, Subscription(FILTER_TYPE))
        self._discovery = discovery

    def heard(self, event: Acknowledged | Refused | None) -> None:
        self._discovery.heard(self, event)

    def forget(self) -> None:
        self._discovery.forget(self)


class FilterDiscovery:
    """Serves what `publish` was last given, and nothing before that: an Envoy that waits for it
    lets nobody in. Belongs to one event loop; never blocks."""

    def __init__(self) -> None:
        self._streams: set[_Stream] = set()
        self._versions = itertools.count(1)
        self._version = 0
        self._filter: bytes | None = None
        self._is_closed = False

    def add_to(self, table: ServiceTable) -> None:
        """Serve extension config discovery."""
        table[STREAM_FILTERS] = self._open_stream

    def publish(self, written: bytes) -> None:
        """From now on the filter is configured so: a TypedExtensionConfig in wire format."""
        if written == self._filter:
            return
        self._filter = written
        self._version = next(self._versions)
        for stream in list(self._streams):
            self._answer(stream)

    def close(self) -> None:
        """End every stream, and every later one at once: the server goes down."""
        self._is_closed = True
        for stream in list(self._streams):
            stream.end()

    def _open_stream(self, call: Call) -> DiscoveryStream:
        """One Envoy's stream; ends when either side leaves."""
        stream = _Stream(call, self)
        self._streams.add(stream)
        if self._is_closed:
            stream.end()
        return stream

    def heard(self, stream: _Stream, event: Acknowledged | Refused | None) -> None:
        """The stream's Envoy asked, or took a version over or not."""
        if isinstance(event, Refused):
            log.error(
                "Envoy %r rejected version %d of the clients' keys and keeps the previous ones: %s",
                *(stream.node_id, event.version, in_short(event.error)),
            )
        self._answer(stream)

    def forget(self, stream: _Stream) -> None:
        """The stream has ended."""
        self._streams.discard(stream)

    def _answer(self, stream: _Stream) -> None:
        """Send the newest version if an answer is due."""
        if self._filter is None or self._is_closed:
            return
        answer = stream.subscription.next_answer(self._version)
        if answer is None:
            return
        response = DiscoveryResponse(
            version_info=str(answer.version),
            nonce=answer.nonce,
            type_url=FILTER_TYPE,
            resources=[Any(type_url=FILTER_TYPE, value=self._filter)],
            control_plane=CONTROL_PLANE,
        )
        stream.call.send(response.SerializeToString())
