"""Clients that stop in the middle of their request, and would hold a slot until they go.

Most of a long body never passes the picker: Envoy sends it straight to the server. So Envoy
tells, every `envoy.request_body_idle_timeout_s`, how much came of each request that has a server
and no answer yet. One that is told the same twice has stood still for at least that long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from extproc.stream.codec import EXCHANGE, LB_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.core.registry import Registry
    from extproc.pb import access_log_pb2 as pb


class UploadReports:
    """Ends running exchanges whose request stands still. Belongs to one event loop."""

    def __init__(self, registry: Registry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        self._ending: set[asyncio.Task[None]] = set()

    def take_in(self, entry: pb.HTTPAccessLogEntry) -> None:
        """Learn from one report. Ends what stands still in a task of its own, since that writes
        to the network; an exchange is ended once, so there are never more than leases."""
        common = entry.common_properties
        if common.HasField("time_to_last_rx_byte") or LB_NAMESPACE not in (
            namespaces := common.metadata.filter_metadata
        ):
            return
        stream = self._registry.get(namespaces[LB_NAMESPACE].fields[EXCHANGE].string_value)
        if stream is None or not stream.stands_still_at(entry.request.request_body_bytes):
            return
        ending = asyncio.create_task(stream.give_up_upload(self._clock()))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
