"""A front: holds Envoy's calls for the core that leads."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

from extproc.app import collector
from extproc.app.ports import http2_server
from extproc.core.constraints import NO_POOL
from extproc.core.request import HOLD_MARGIN_S
from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.child import Child, Identity
from extproc.processes.control import Message
from extproc.processes.fronts.front_calls import FrontCalls, FrontOptions
from extproc.processes.fronts.handshake import HandshakeError
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.network_frames import network_codec
from extproc.processes.leader_connection import connect_with_leader
from extproc.settings import Settings, SettingsError
from extproc.stream.envoy import codec
from extproc.stream.envoy.access_log import STREAM_ACCESS_LOGS
from extproc.stream.exchange_id import new_id
from extproc.transport import ServiceTable
from extproc.transport.health import Health
from extproc.transport.http2_server import Http2Server
from extproc.transport.long_wait import waits_long
from extproc.usage.response_stream import with_responses
from extproc.xds.clusters import STREAM_CLUSTERS
from extproc.xds.service import STREAM_ENDPOINTS

Begin: TypeAlias = Callable[[Link], None]
"""Called with a link as soon as the core is reached."""
STOP_GRACE_S: Final = 0.5
POLL_S: Final = 0.05
HELD: Final = (codec.PROCESS, STREAM_ENDPOINTS, STREAM_CLUSTERS, STREAM_ACCESS_LOGS)
"""The calls of Envoy that the core serves."""

log = logging.getLogger("coxswain.front")


async def run_front(settings: Settings, identity: Identity) -> None:
    """Serve until the supervisor says so, or SIGTERM. Raises `SettingsError` for certificates."""
    front = Front(settings, identity)
    await front.run()


class Front:
    """The process. Belongs to one event loop."""

    def __init__(self, settings: Settings, identity: Identity) -> None:
        loop = asyncio.get_running_loop()
        self._settings = settings
        self._loop = loop
        wait_s = settings.queue.timeout_s + HOLD_MARGIN_S
        self._calls = FrontCalls(
            self._own_name(identity.name),
            FrontOptions(
                restored=codec.PROCESS,
                extension=codec.extend_timeout(wait_s).SerializeToString(),
                waits_long=lambda call: waits_long(call.metadata),
                new_id=new_id,
                patience_s=settings.cluster.patience_s if settings.cluster.name else None,
            ),
            loop,
            time.monotonic,
        )
        self._calls.on_lost = self._lost
        self._calls.on_opened = self._opened
        self._health = Health()
        self._calls.on_given_up = partial(self._health.set_ready, False)
        self._servers: dict[str, Http2Server] = {}
        """By the pool whose port they serve; that of `listen.grpc` is of none."""
        self._server_of(NO_POOL)
        self._link_number = 0
        self._ordered = 0
        """The number of the last link that was ordered."""
        self._followed: tuple[str | None, int | None] = (None, None)
        """The leader that was followed last, and its epoch."""
        self._leaving = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._child = Child(identity, self._hear, self._figures)
        self._calls.progress.on_progress = self._child.progress

    def _own_name(self, name: str) -> str:
        cluster = self._settings.cluster
        return cluster.front_name(name) if cluster.name else name

    def _server_of(self, pool: str) -> Http2Server:
        """What serves the connections at the port of a pool. Raises `SettingsError`."""
        if pool not in self._servers:
            table: ServiceTable = {}
            self._health.add_to(table)
            self._calls.add_to(table, HELD, pool)
            if self._settings.usage.path is not None:
                # Whose exchange it was knows the core, and it may be at another front.
                process, responses = table[codec.PROCESS], self._calls.responses
                table[codec.PROCESS] = with_responses(process, responses, lambda _: True)
            self._servers[pool] = http2_server(self._settings, table)
        return self._servers[pool]

    def _figures(self) -> dict[str, float]:
        return {
            "connections": sum(each.connections for each in self._servers.values()),
            "calls": len(self._calls),
            "follows_until": self._calls.decides_until,
        }

    async def run(self) -> None:
        await self._server_of(NO_POOL).start()
        self._calls.start()
        self._loop.add_signal_handler(signal.SIGTERM, self._child.report, "leaving")
        collector.settle()
        self._child.report("started")
        await self._leaving.wait()
        self._health.set_ready(False)
        servers = list(self._servers.values())
        for each in servers:
            each.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while self._calls.requests:  # noqa: ASYNC110 - polled once, at the end
                    await asyncio.sleep(POLL_S)
        self._calls.stop()  # first: what runs on drains at the core, as no end of it was seen
        await asyncio.gather(*(each.stop(STOP_GRACE_S) for each in servers))
        await asyncio.sleep(0)  # uvloop does not end while a link is open

    def _hear(self, message: Message, sockets: list[socket.socket]) -> None:
        match message["do"]:
            case "link":
                number, term = int(message["number"]), message["term"]
                self._spawn(self._switch(number, term, partial(self._join, sockets[0])))
            case "follow":
                number, term = int(message["number"]), message["term"]
                self._spawn(self._switch(number, term, partial(self._connect, term)))
            case "serve":
                number, pool = int(message["number"]), str(message["pool"])
                self._spawn(self._serve(sockets[0], number, pool))
            case "unready":
                self._health.set_ready(False)
            case "leave":
                self._leaving.set()
            case "stop":
                self._settings = self._settings.model_copy(update={"drain_timeout_s": 0.0})
                self._leaving.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _switch(
        self, number: int, term: dict[str, Any], join: Callable[[Begin], Awaitable[None]]
    ) -> None:
        """Follow the core of `term`, and no later order's predecessor."""
        self._ordered = number
        self._calls.leave()
        if (term.get("leader"), term.get("epoch")) != self._followed and not self._is_clean(term):
            wait_s = self._calls.pledged_until - time.monotonic()
            if wait_s > 0:  # the core before may count on this front for so long
                await asyncio.sleep(wait_s)
        try:
            await join(partial(self._begin, number, term))
        except (OSError, HandshakeError, SettingsError, TimeoutError) as error:
            log.info("the core cannot be reached: %s", error)
            self._child.report("unlinked", number=number)

    def _begin(self, number: int, term: dict[str, Any], link: Link) -> None:
        """The core is reached: it gets what this front holds. Raises `HandshakeError` if another
        one is to be followed."""
        if number != self._ordered:
            raise HandshakeError("another core is followed")
        self._followed = (term.get("leader"), term.get("epoch"))
        self._link_number = number
        self._calls.follow(link)

    def _is_clean(self, term: dict[str, Any]) -> bool:
        """Whether the leader that this front followed had stopped when that of `term` began."""
        _, epoch = self._followed
        return bool(term.get("is_clean")) and epoch == int(term["epoch"]) - 1

    async def _join(self, end: socket.socket, begin: Begin) -> None:
        link = Link(self._calls, self._loop, "the core")
        factory = lambda: cast("asyncio.Protocol", link)  # noqa: E731
        await self._loop.connect_accepted_socket(factory, end)
        try:
            begin(link)
        except HandshakeError:
            link.close()
            raise

    async def _connect(self, term: dict[str, Any], begin: Begin) -> None:
        """Connect with the core of another machine. Raises `OSError`, `HandshakeError`,
        `TimeoutError` and `SettingsError`."""
        link = Link(self._calls, self._loop, str(term["leader"]), network_codec())

        def welcomed() -> asyncio.Protocol:
            begin(link)
            return cast("asyncio.Protocol", link)

        await connect_with_leader(
            self._settings.cluster,
            term,
            pb.Greeting.PURPOSE_FOLLOW,
            welcomed,
            front=self._calls.name,
        )

    async def _serve(self, connection: socket.socket, number: int, pool: str) -> None:
        try:
            await self._server_of(pool).serve(connection)
        except (OSError, SettingsError) as error:
            connection.close()
            log.info("a connection ended before it was served: %s", error)
        self._child.report("serves", number=number)

    def _lost(self) -> None:
        self._child.report("unlinked", number=self._link_number)

    def _opened(self) -> None:
        if not self._leaving.is_set():
            self._health.set_ready(True)
        self._child.report("opened")
