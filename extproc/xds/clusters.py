"""The cluster discovery service: sends every Envoy the cluster of the llama-servers.

It sends the one cluster whole, and again when a server comes whose CA it does not hold
yet, or theirs change. Envoy prepares the new cluster beside the old one, with a stream of endpoint
discovery of its own, and then puts it in the old one's place. So `abilities` learns from those
streams what Envoy can do by now, and nothing here needs to wait for anything. What an Envoy
refuses is left out for it (`ca_rollout.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from google.protobuf.any_pb2 import Any

from extproc.pb.discovery_pb2 import DiscoveryResponse
from extproc.security.trust import Trust
from extproc.transport import Call
from extproc.transport.status import INTERNAL
from extproc.xds.ca_rollout import CaRollout
from extproc.xds.gate import Gate
from extproc.xds.stream import CONTROL_PLANE, DiscoveryService, DiscoveryStream, in_short
from extproc.xds.subscription import (
    CLUSTER_TYPE,
    Acknowledged,
    Answer,
    Refused,
    Subscription,
)

STREAM_CLUSTERS: Final = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"

log = logging.getLogger("coxswain.xds")

WriteCluster: TypeAlias = Callable[[frozenset[str], tuple[Trust, ...]], bytes]
"""The cluster for an Envoy whose listener has these abilities, with whom to trust for the servers
behind TLS, in wire format. Runs in a thread."""


class _Stream(DiscoveryStream):
    """`version` is the newest that there is for its Envoy."""

    def __init__(self, call: Call, version: int, service: ClusterDiscovery) -> None:
        super().__init__(call, Subscription(CLUSTER_TYPE, is_for_all=True), service)
        self.version = version
        self.offers = CaRollout()


class ClusterDiscovery(DiscoveryService[_Stream]):
    """Sends what `publish` was last given, when the gate is open. Belongs to one event loop.

    `set_refused` hears the profiles whose current CA some Envoy does not take.
    """

    def __init__(
        self, gate: Gate, set_refused: Callable[[frozenset[str]], None] = lambda _: None
    ) -> None:
        super().__init__(STREAM_CLUSTERS, gate)
        self._set_refused = set_refused
        self._refused: frozenset[str] = frozenset()
        self._trusts: Mapping[str, Trust] = {}
        self._proven: dict[str, Trust] = {}
        gate.on_open.append(self._answer_all)
        self._writing: set[asyncio.Task[None]] = set()
        self._versions = itertools.count(1)
        self._version = 0
        self._write_cluster: WriteCluster | None = None

    def publish(self, trusts: Mapping[str, Trust], write_cluster: WriteCluster) -> None:
        """From now on the cluster is what this writes, with all of `trusts` that an Envoy takes,
        by the names of their profiles. Never blocks."""
        self._trusts = dict(trusts)
        self._proven = {name: trust for name, trust in self._proven.items() if name in trusts}
        self._write_cluster = write_cluster
        self._version = next(self._versions)
        for stream in self._streams:
            stream.version = self._version
        self._answer_all()

    def new_stream(self, call: Call) -> _Stream:
        return _Stream(call, self._version, self)

    def heard(self, stream: _Stream, event: Acknowledged | Refused | None) -> None:
        if isinstance(event, Acknowledged):
            is_rest_due = stream.offers.accept()
            self._proven |= stream.offers.held
            if is_rest_due:
                self._offer_again(stream)
        elif isinstance(event, Refused):
            self._refuse(stream, event)
        self._answer(stream)

    def _refuse(self, stream: _Stream, event: Refused) -> None:
        log.error(
            "Envoy %r rejected version %d of the llama-servers' cluster and keeps the previous "
            "one: %s",
            *(stream.node_id, event.version, in_short(event.error)),
        )
        found = stream.offers.refuse()
        self._report_refused()
        if found:
            self._offer_again(stream)
        if isinstance(found, Trust):
            log.error(
                "Envoy %r rejects the CA of %s; the other servers are served without it",
                *(stream.node_id, found.profile),
            )

    def _offer_again(self, stream: _Stream) -> None:
        """Something else than before, although nothing new was published."""
        stream.version = next(self._versions)

    def forget(self, stream: _Stream) -> None:
        super().forget(stream)
        self._report_refused()

    def _report_refused(self) -> None:
        refused = frozenset().union(*(stream.offers.refused for stream in self._streams))
        if refused != self._refused:
            self._refused = refused
            self._set_refused(refused)

    def _answer_all(self) -> None:
        for stream in list(self._streams):
            self._answer(stream)

    def _answer(self, stream: _Stream) -> None:
        """Send the newest version if an answer is due: in a task, as it takes a while to write."""
        if not self.gate.is_open or self._write_cluster is None or self._is_closed:
            return
        answer = stream.subscription.next_answer(stream.version)
        if answer is None:
            return
        trusts = stream.offers.draw(self._trusts, self._proven)
        self._report_refused()
        task = asyncio.create_task(self._write(stream, answer, trusts, self._write_cluster))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(
        self,
        stream: _Stream,
        answer: Answer,
        trusts: tuple[Trust, ...],
        write_cluster: WriteCluster,
    ) -> None:
        try:
            written = await asyncio.to_thread(write_cluster, stream.abilities, trusts)
        except Exception:
            log.exception("writing the llama-servers' cluster failed")
            stream.end(INTERNAL, "the cluster cannot be written")
            return
        response = DiscoveryResponse(
            version_info=str(answer.version),
            nonce=answer.nonce,
            type_url=CLUSTER_TYPE,
            resources=[Any(type_url=CLUSTER_TYPE, value=written)],
            control_plane=CONTROL_PLANE,
        )
        stream.call.send(response.SerializeToString())
