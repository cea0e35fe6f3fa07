"""The cluster discovery service: sends every Envoy the cluster of the llama-servers.

It tells the one cluster whole, and again when a server comes whose authorities it does not hold
yet, or theirs change. Envoy prepares the new cluster beside the old one, with a stream of endpoint
discovery of its own, and then puts it in the old one's place. So `abilities` learns from those
streams what Envoy can do by now, and nothing here needs to wait for anything. What an Envoy
refuses is left out for it (`ca_rollout.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc.aio
from google.protobuf.any_pb2 import Any

from extproc.pb.cluster_discovery_pb2_grpc import (
    ClusterDiscoveryServiceServicer,
    add_ClusterDiscoveryServiceServicer_to_server,
)
from extproc.pb.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from extproc.security.trust import Trust
from extproc.xds.ca_rollout import CaRollout
from extproc.xds.capabilities import read_capabilities
from extproc.xds.gate import Gate
from extproc.xds.stream import (
    CONTROL_PLANE,
    StreamContext,
    converse,
    in_short,
    node_of,
    question,
)
from extproc.xds.subscription import CLUSTER_TYPE, Acknowledged, Refused, Subscription

log = logging.getLogger("coxswain.xds")

WriteCluster: TypeAlias = Callable[[frozenset[str], tuple[Trust, ...]], bytes]
"""The cluster for an Envoy whose listener has these abilities, with whom to trust for the servers
behind TLS, in wire format. Runs in a thread."""


def _subscription() -> Subscription:
    return Subscription(CLUSTER_TYPE, is_for_all=True)


@dataclass(slots=True, eq=False)
class _Stream:
    abilities: frozenset[str]
    version: int
    node_id: str = ""
    offers: CaRollout = field(default_factory=CaRollout)
    subscription: Subscription = field(default_factory=_subscription)
    due: asyncio.Event = field(default_factory=asyncio.Event)


class ClusterDiscovery(ClusterDiscoveryServiceServicer):
    """Tells what `publish` was last given, when the gate is open. Belongs to one event loop.

    `set_refused` hears the profiles whose present authorities some Envoy does not take.
    """

    def __init__(
        self, gate: Gate, set_refused: Callable[[frozenset[str]], None] = lambda _: None
    ) -> None:
        self._gate = gate
        self._set_refused = set_refused
        self._refused: frozenset[str] = frozenset()
        self._trusts: Mapping[str, Trust] = {}
        self._proven: dict[str, Trust] = {}
        gate.on_open.append(self._wake_all)
        self._streams: set[_Stream] = set()
        self._versions = itertools.count(1)
        self._version = 0
        self._write_cluster: WriteCluster | None = None
        self._is_closed = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        add_ClusterDiscoveryServiceServicer_to_server(self, server)

    def publish(self, trusts: Mapping[str, Trust], write_cluster: WriteCluster) -> None:
        """From now on the cluster is what this writes, with all of `trusts` that an Envoy takes,
        by the names of their profiles. Never blocks."""
        self._trusts = dict(trusts)
        self._proven = {name: trust for name, trust in self._proven.items() if name in trusts}
        self._write_cluster = write_cluster
        self._version = next(self._versions)
        for stream in self._streams:
            stream.version = self._version
        self._wake_all()

    def close(self) -> None:
        """End every stream, and every later one at once: the server goes down."""
        self._is_closed = True
        self._wake_all()

    async def StreamClusters(  # noqa: N802  # gRPC names it
        self, request_iterator: AsyncIterator[DiscoveryRequest], context: StreamContext
    ) -> None:
        """One Envoy's stream; ends when either side leaves."""
        stream = _Stream(read_capabilities(context.invocation_metadata() or ()), self._version)
        self._streams.add(stream)
        self._gate.wait()
        await converse(
            self._read(stream, request_iterator),
            self._write(stream, context),
            context,
            lambda: stream.node_id,
            lambda: self._forget(stream),
        )

    async def _read(self, stream: _Stream, questions: AsyncIterator[DiscoveryRequest]) -> None:
        async for message in questions:
            stream.node_id = stream.node_id or node_of(message)
            event = stream.subscription.ask(question(message))
            if isinstance(event, Acknowledged):
                is_rest_due = stream.offers.accept()
                self._proven |= stream.offers.held
                if is_rest_due:
                    self._offer_again(stream)
            elif isinstance(event, Refused):
                self._refuse(stream, event)
            stream.due.set()

    def _refuse(self, stream: _Stream, event: Refused) -> None:
        log.error(
            "Envoy %r rejected version %d of the llama-servers' cluster and keeps the previous "
            "one: %s",
            *(stream.node_id, event.version, in_short(event.error)),
        )
        found = stream.offers.refuse()
        self._tell_refused()
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

    def _forget(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        self._tell_refused()

    def _tell_refused(self) -> None:
        refused = frozenset().union(*(stream.offers.refused for stream in self._streams))
        if refused != self._refused:
            self._refused = refused
            self._set_refused(refused)

    async def _write(self, stream: _Stream, context: StreamContext) -> None:
        while not self._is_closed:
            if self._gate.is_open and self._write_cluster is not None:
                answer = stream.subscription.next_answer(stream.version)
                if answer is not None:
                    trusts = stream.offers.draw(self._trusts, self._proven)
                    self._tell_refused()
                    written = await asyncio.to_thread(self._write_cluster, stream.abilities, trusts)
                    await context.write(
                        DiscoveryResponse(
                            version_info=str(answer.version),
                            nonce=answer.nonce,
                            type_url=CLUSTER_TYPE,
                            resources=[Any(type_url=CLUSTER_TYPE, value=written)],
                            control_plane=CONTROL_PLANE,
                        )
                    )
            await stream.due.wait()
            stream.due.clear()

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.due.set()
