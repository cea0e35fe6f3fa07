"""Ends requests that hold a slot while the rest of their body stalls or is too slow.

Most of a long body never passes the picker: Envoy sends it straight to the server. So Envoy
reports, several times within `envoy.request_body_grace_s`, how much came of each request that got
its server before it was whole and has no answer yet. `upload.Upload` decides.
"""

from collections.abc import Callable

from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.pb import access_log_pb2 as pb
from extproc.stream.envoy.codec import EXCHANGE, LB_NAMESPACE


class UploadWatchdog:
    """Passes Envoy's reports to running exchanges, and ends those that are too slow. Belongs to one
    event loop.
    """

    def __init__(self, registry: ExchangeRegistry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock

    def take_in(self, entry: pb.HTTPAccessLogEntry) -> None:
        """Handle one report."""
        common = entry.common_properties
        namespaces = common.metadata.filter_metadata
        if LB_NAMESPACE not in namespaces:
            return
        stream = self._registry.get(namespaces[LB_NAMESPACE].fields[EXCHANGE].string_value)
        if stream is None:
            return
        now = self._clock()
        why = stream.upload_reported(
            entry.request.request_body_bytes,
            now,
            is_whole=common.HasField("time_to_last_rx_byte"),
        )
        if why is not None:
            stream.end_upload(why, now)
