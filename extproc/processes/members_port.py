"""The leading core's side of the port for members: fronts of other machines follow it, and members
that stand by learn from it and pass connections on to it. The supervisor accepts, this goes on."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from extproc.app.service import Service
from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.cluster_access import is_token, server_context
from extproc.processes.fronts.core_calls import CoreCalls
from extproc.processes.fronts.handshake import HandshakeError, HandshakeServer
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.network_frames import VERSION, network_codec
from extproc.processes.learned_frames import learned_codec
from extproc.processes.memory_feed import MemoryFeed
from extproc.processes.standby import Arrival
from extproc.settings import Settings, SettingsError
from extproc.settings.values import split_host_port

LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1", "localhost": "127.0.0.1"}
TLS_HANDSHAKE: Final = {"ssl_handshake_timeout": 5.0}

log = logging.getLogger("coxswain.core")


class MembersPort:
    """Belongs to one event loop. `calls` returns the calls of the fronts, `feed` says what is
    learned, `term` is this machine as the leader that it is."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        calls: Callable[[], CoreCalls],
        feed: MemoryFeed,
    ) -> None:
        self._settings = settings
        self._service = service
        self._calls = calls
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self.term: dict[str, Any] = {}

    async def greet(self, end: socket.socket) -> None:
        """Another member has connected."""
        cluster = self._settings.cluster
        try:
            await self._loop.connect_accepted_socket(
                lambda: HandshakeServer(self._accept, self._loop),
                end,
                ssl=server_context(cluster),
                **({} if cluster.cert_file is None else TLS_HANDSHAKE),
            )
        except (OSError, SettingsError) as error:
            end.close()
            log.warning("a member could not connect: %s", error)

    def _accept(self, greeting: pb.Greeting) -> asyncio.Protocol:
        """What goes on with a connection of another member. Raises `HandshakeError`."""
        cluster = self._settings.cluster
        if greeting.cluster != cluster.name or not is_token(cluster, greeting.token):
            raise HandshakeError("it is of another cluster, or its token is wrong")
        if greeting.version != VERSION:
            raise HandshakeError(f"it speaks version {greeting.version}, this core {VERSION}")
        if (greeting.leader_id, greeting.epoch) != (self.term["leader"], self.term["epoch"]):
            raise HandshakeError("another leader is meant")
        if greeting.purpose == pb.Greeting.PURPOSE_FOLLOW:
            calls = self._calls()
            codec = network_codec()
            link = Link(calls, self._loop, greeting.front, codec, may_send=calls.may_decide)
            calls.replace(link)
        elif greeting.purpose == pb.Greeting.PURPOSE_LEARN:
            link = Link(self._feed, self._loop, codec=learned_codec())
            self._feed.attach(link)
        else:
            return self._pass_on(greeting)
        return cast("asyncio.Protocol", link)

    def _pass_on(self, greeting: pb.Greeting) -> asyncio.Protocol:
        """A connection of an operator, an agent, a browser or KEDA to a member that stands by."""
        listen, service = self._settings.listen, self._service
        ports = {
            pb.Greeting.PURPOSE_ADMIN: (listen.admin, service.admin_port),
            pb.Greeting.PURPOSE_HTTP: (listen.http, service.http_port),
            pb.Greeting.PURPOSE_KEDA: (self._settings.keda.listen or "", service.keda_port),
        }
        address, port = ports.get(greeting.purpose, ("", 0))
        if not port:
            raise HandshakeError("it wants something that this core does not serve")
        listens_at, _ = split_host_port(address)
        return Arrival(LOOPBACKS.get(listens_at, listens_at), port, greeting.peer)
