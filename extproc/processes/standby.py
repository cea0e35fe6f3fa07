"""The ports of a member that stands by, for operators, pages and KEDA: what comes is passed on to
the leader.

The bytes of a connection go through the leader's port for members, so certificates and tokens are
checked there. Of the pages, this member answers those about itself: `/healthz`, `/readyz` and
`/metrics`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from extproc.admin.auth.peer import PASSED_ON
from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts.handshake import HandshakeError
from extproc.processes.leader_connection import connect_with_leader
from extproc.settings import Settings, SettingsError
from extproc.settings.values import split_host_port
from extproc.transport.descriptors import ADMIN, HEADERS_S, KEDA, PAGES, connections

RETRY_S: Final = 0.25
OWN_PAGE: Final = re.compile(rb"(?:GET|HEAD) (/healthz|/readyz|/metrics)(?:\?[^ ]*)? HTTP/1")
MAX_LINE_BYTES: Final = 8192
MAX_WAITING_BYTES: Final = 64 * 1024
"""What one side may say before the other is there."""
QUIET_S: Final = 1.0
"""A connection on which nothing was said for so long waits for no answer."""
LEAVE_S: Final = 3.0
"""Less than the `STOP_MARGIN_S` that a supervisor waits for its processes."""
CHECK_S: Final = 0.1
SHARES: Final = {
    pb.Greeting.PURPOSE_ADMIN: ADMIN,
    pb.Greeting.PURPOSE_HTTP: PAGES,
    pb.Greeting.PURPOSE_KEDA: KEDA,
}
"""Of the descriptors, by port."""

Page = tuple[int, str, bytes]
"""A status, a content type and a body."""

log = logging.getLogger("coxswain.cluster")


class Standby:
    """Belongs to one event loop. `page` answers the paths of `OWN_PAGE`."""

    def __init__(self, settings: Settings, page: Callable[[str], Page]) -> None:
        self._settings = settings
        self.page = page
        self._loop = asyncio.get_running_loop()
        self._servers: list[tuple[asyncio.Server, partial[_Asked]]] = []
        self._callers: set[_Asked] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._term: dict[str, Any] = {}
        self._starting: asyncio.Task[None] | None = None

    def follow(self, term: dict[str, Any]) -> None:
        """Pass connections on to this leader; those to the one before end."""
        if term == self._term:
            return
        self._term = term
        self._end_connections()
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())

    async def leave(self) -> None:
        """Stop listening, and let each connection go on until nothing was said on it for `QUIET_S`;
        those that are left after `LEAVE_S` end."""
        await self._stop_listening()
        end = time.monotonic() + LEAVE_S
        while self._callers and (now := time.monotonic()) < end:
            for caller in list(self._callers):
                if caller.heard_at + QUIET_S <= now:
                    caller.close()
            await asyncio.sleep(CHECK_S)
        await self.stop()

    async def stop(self) -> None:
        """Stop listening, and end all connections that are passed on."""
        await self._stop_listening()
        self._end_connections()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stop_listening(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        left: list[tuple[partial[_Asked], socket.socket]] = []
        for server, protocol in self._servers:
            for listening in server.sockets:
                left += [(protocol, each) for each in _accept_all(listening)]
            server.close()
        for protocol, each in left:
            await self._loop.connect_accepted_socket(protocol, each)

    def _end_connections(self) -> None:
        for caller in list(self._callers):
            if caller.is_passed_on:
                caller.close()

    async def _start(self) -> None:
        listen, keda = self._settings.listen, self._settings.keda.listen
        for address, purpose in (
            (listen.admin, pb.Greeting.PURPOSE_ADMIN),
            (listen.http, pb.Greeting.PURPOSE_HTTP),
            *([] if keda is None else [(keda, pb.Greeting.PURPOSE_KEDA)]),
        ):
            host, port = split_host_port(address)
            protocol = partial(_Asked, self, purpose)
            is_reported = False
            while True:
                try:
                    server = await self._loop.create_server(
                        protocol,
                        host,
                        port,
                        reuse_address=True,
                        reuse_port=True,  # the one that it replaces listens a moment longer
                    )
                except OSError as error:
                    if not is_reported:
                        log.warning("cannot listen on %s yet: %s", address, error.strerror)
                    is_reported = True
                    await asyncio.sleep(RETRY_S)  # our core that led may not have ended yet
                else:
                    self._servers.append((server, protocol))
                    break

    # One connection

    def accepts(self, asked: _Asked, purpose: pb.Greeting.Purpose) -> bool:
        """Whether the port of that purpose has room for one more, and note it."""
        most = connections(SHARES[purpose])
        if sum(each.purpose == purpose for each in self._callers) >= most:
            return False
        self._callers.add(asked)
        return True

    def pass_on(self, asked: Pipe, purpose: pb.Greeting.Purpose, peer: str) -> None:
        task = self._loop.create_task(self._pass_on(asked, purpose, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def connection_ended(self, asked: _Asked) -> None:
        self._callers.discard(asked)

    async def _pass_on(self, asked: Pipe, purpose: pb.Greeting.Purpose, peer: str) -> None:
        leader = Pipe()
        try:
            await connect_with_leader(
                self._settings.cluster, self._term, purpose, lambda: leader, peer=peer
            )
        except (OSError, HandshakeError, SettingsError, TimeoutError) as error:
            log.info("a connection cannot be passed on: %s", error)
            asked.close()
            return
        asked.join(leader)


def _accept_all(listening: socket.socket) -> list[socket.socket]:
    """The connections whose callers would see them reset if `listening` were closed now. No error
    keeps the port from being closed."""
    found = []
    with suppress(OSError), listening.dup() as own:
        while True:
            found.append(own.accept()[0])
    return found


class Pipe(asyncio.Protocol):
    """One of two connections whose bytes are passed on, in both directions and at the pace of the
    slower. When either ends, so does the other."""

    def __init__(self) -> None:
        self.other: Pipe | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting = bytearray()
        self.is_over = False
        self.heard_at = time.monotonic()
        """When one of both last said something, by the monotonic clock."""

    def join(self, other: Pipe) -> None:
        """Pass bytes on between both from now on, with those that came before."""
        for one, two in ((self, other), (other, self)):
            one.other = two
            if two.transport is not None and one.waiting:
                two.transport.write(bytes(one.waiting))
            one.waiting.clear()
            if one.transport is not None:
                one.transport.resume_reading()
        if self.is_over or other.is_over:
            self.close()

    def close(self) -> None:
        """End both connections."""
        for pipe in (self, self.other):
            if pipe is not None and pipe.transport is not None:
                pipe.transport.close()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        if self.other is not None:
            self.other.heard_at = self.heard_at
            if self.other.transport is not None:
                self.other.transport.write(data)
            return
        self.waiting += data
        if len(self.waiting) > MAX_WAITING_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self.is_over = True
        if self.other is not None:
            self.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _Asked(Pipe):
    """A connection of an operator, an agent, a browser or KEDA."""

    def __init__(self, standby: Standby, purpose: pb.Greeting.Purpose) -> None:
        super().__init__()
        self._standby = standby
        self._purpose = purpose
        self.purpose = purpose
        self._line: bytearray | None = None
        self._timer: asyncio.TimerHandle | None = None

    def _end_silent(self) -> None:
        if self._line is not None:
            self.close()

    @property
    def is_passed_on(self) -> bool:
        """Or answered; else which page it asks for has not been read yet."""
        return self._line is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._standby.accepts(self, self._purpose):
            self.close()
            return
        if self._purpose == pb.Greeting.PURPOSE_HTTP:
            self._line = bytearray()
            self._timer = asyncio.get_running_loop().call_later(HEADERS_S, self._end_silent)
        else:
            self._pass_on()

    def data_received(self, data: bytes) -> None:
        if self._line is None:
            super().data_received(data)
            return
        self._line += data
        if b"\n" not in self._line and len(self._line) < MAX_LINE_BYTES:
            return
        line, self._line = bytes(self._line), None
        found = OWN_PAGE.match(line)
        if found is None:
            super().data_received(line)
            self._pass_on()
        else:
            self._answer(*self._standby.page(found.group(1).decode()))

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._standby.connection_ended(self)
        super().connection_lost(error)

    def _pass_on(self) -> None:
        assert self.transport is not None
        name = self.transport.get_extra_info("peername")
        self._standby.pass_on(self, self._purpose, str(name[0]) if name else "")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        assert self.transport is not None
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Service Unavailable'}\r\n"
            f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
            "cache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Arrival(Pipe):
    """At the leader: a connection of `peer` that a member has passed on. It goes on to a port of
    this machine, and `PASSED_ON` has the port from which it does so as long as that lasts."""

    def __init__(self, host: str, port: int, peer: str) -> None:
        super().__init__()
        self._host = host
        self._port = port
        self._peer = peer
        self._own_port = 0
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._reach())

    def connection_lost(self, error: Exception | None) -> None:
        if self._own_port:
            PASSED_ON.pop((self._host, self._own_port), None)
        super().connection_lost(error)

    async def _reach(self) -> None:
        there = Pipe()
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: there, self._host, self._port
            )
        except OSError:
            self.close()
            return
        if self.is_over:  # nothing may be heard from a port that has no caller any more
            transport.close()
            return
        name = transport.get_extra_info("sockname")
        self._own_port = int(name[1])
        PASSED_ON[self._host, self._own_port] = self._peer
        self.join(there)
