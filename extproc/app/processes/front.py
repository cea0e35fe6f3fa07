"""A front: holds Envoy's calls for the core that leads."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from extproc.app.ports import http2_server
from extproc.app.processes.child import Child, Identity
from extproc.core.request import HOLD_MARGIN_S
from extproc.fronts.front_calls import FrontCalls, FrontOptions
from extproc.fronts.link import Link
from extproc.stream.envoy import codec
from extproc.stream.envoy.access_log import STREAM_ACCESS_LOGS
from extproc.stream.exchange_id import new_id
from extproc.stream.held_state import FINAL, OVER, QUEUED
from extproc.stream.servicer import PROCESS
from extproc.transport.health import Health
from extproc.transport.patience import is_patient
from extproc.usage.response_stream import with_responses
from extproc.xds.clusters import STREAM_CLUSTERS
from extproc.xds.filters import STREAM_FILTERS
from extproc.xds.service import STREAM_ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from extproc.app.processes.control import Message
    from extproc.settings import Settings
    from extproc.transport import ServiceTable

STOP_GRACE_S: Final = 0.5
POLL_S: Final = 0.05
HELD: Final = (PROCESS, STREAM_ENDPOINTS, STREAM_CLUSTERS, STREAM_FILTERS, STREAM_ACCESS_LOGS)
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
            identity.name,
            FrontOptions(
                restored=PROCESS,
                extension=codec.extend_timeout(wait_s).SerializeToString(),
                is_patient=lambda call: is_patient(call.metadata),
                finals=FINAL,
                queued=QUEUED,
                over=OVER,
                new_id=new_id,
            ),
            loop,
            time.monotonic,
        )
        self._calls.on_lost = self._lost
        self._calls.on_opened = self._opened
        self._health = Health()
        table: ServiceTable = {}
        self._health.add_to(table)
        self._calls.add_to(table, HELD)
        if settings.usage.path is not None:
            # Whose exchange it was knows the core, and it may be at another front.
            responses = self._calls.responses
            table[PROCESS] = with_responses(table[PROCESS], responses, lambda _: True)
        self._server = http2_server(settings, table, time.monotonic)
        self._link_number = 0
        self._leaving = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._child = Child(
            identity,
            self._hear,
            lambda: {"connections": self._server.connections, "calls": len(self._calls)},
        )

    async def run(self) -> None:
        await self._server.start()
        self._calls.start()
        self._loop.add_signal_handler(signal.SIGTERM, self._child.report, "leaving")
        gc.collect()
        gc.freeze()
        self._child.report("started")
        await self._leaving.wait()
        self._health.set_ready(False)
        self._server.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while len(self._calls):  # noqa: ASYNC110 - polled once, at the end
                    await asyncio.sleep(POLL_S)
        await self._server.stop(STOP_GRACE_S)
        self._calls.stop()
        await asyncio.sleep(0)  # uvloop does not end while a link is open

    def _hear(self, message: Message, sockets: list[socket.socket]) -> None:
        match message["do"]:
            case "link":
                self._spawn(self._follow(int(message["number"]), sockets[0]))
            case "serve":
                self._spawn(self._serve(sockets[0]))
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

    async def _follow(self, number: int, end: socket.socket) -> None:
        link = Link(self._calls, self._loop, f"link {number}")
        factory = lambda: cast("asyncio.Protocol", link)  # noqa: E731
        await self._loop.connect_accepted_socket(factory, end)
        self._link_number = number
        self._calls.follow(link)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._server.serve(connection)
        except OSError as error:
            log.info("a connection ended before it was served: %s", error)

    def _lost(self) -> None:
        self._child.report("unlinked", number=self._link_number)

    def _opened(self) -> None:
        if not self._leaving.is_set():
            self._health.set_ready(True)
        self._child.report("opened")
