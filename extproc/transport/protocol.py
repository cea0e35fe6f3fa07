"""A connection of the data plane's port on asyncio: bytes, timers and pauses."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extproc.transport.call import ServiceTable
from extproc.transport.grpc_connection import GrpcConnection
from extproc.transport.limits import TransportLimits

WRITE_BUFFER_BYTES: Final = 4 << 20
"""Unsent bytes in the socket's buffer at which nothing more is read or written."""

log = logging.getLogger("coxswain.transport")


class Connections:
    """The open connections of one port."""

    def __init__(
        self,
        table: ServiceTable,
        limits: TransportLimits,
        clock: Callable[[], float],
    ) -> None:
        """`clock` returns seconds; it need not be the loop's."""
        self.table = table
        self.limits = limits
        self.clock = clock
        self.open: set[Http2Protocol] = set()
        self.one_ended = asyncio.Event()
        """Set when a connection ends."""
        self._is_reading = False
        self._deferred: list[Callable[[], None]] = []

    def make_room(self) -> bool:
        """Cut the connection that has been silent for longest of those without a call; False if
        there is none. Connections that are only held keep no Envoy out."""
        unused = [each for each in self.open if not each.has_calls]
        if not unused:
            return False
        longest = min(unused, key=lambda each: each.heard_at)
        log.warning("the connection of %s made way for another one", longest.peer)
        self.open.discard(longest)
        longest.abort()
        return True

    def soon(self, function: Callable[[], None]) -> None:
        """Run it before the output of the current read is written, or in the loop's next turn."""
        if self._is_reading:
            self._deferred.append(function)
        else:
            asyncio.get_running_loop().call_soon(function)

    def begin_read(self) -> None:
        self._is_reading = True

    def end_read(self) -> None:
        """Run what was deferred since `begin_read`. Never raises."""
        self._is_reading = False
        if not self._deferred:
            return
        functions, self._deferred = self._deferred, []
        for function in functions:
            try:
                function()
            except Exception:
                log.exception("a deferred step of a call failed")


class Http2Protocol:
    """What asyncio calls. All output of one read leaves in one write."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._clock = connections.clock
        now = connections.clock()
        self._grpc = GrpcConnection(
            connections.table,
            connections.limits,
            now,
            self._flush_soon,
            self._loop.call_later,
            connections.soon,
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.heard_at = now
        self._is_receiving = False
        self._is_flush_due = False
        self._is_pinging = False
        self._is_leaving = False
        self.peer = ""

    @property
    def has_calls(self) -> bool:
        """Whether a call is under way."""
        return bool(len(self._grpc))

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The connection is open, behind TLS where that is used."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "a client"
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            log.warning("rejected a connection of %s: it does not negotiate h2", self.peer)
            transport.abort()
            return
        open_ones = self._connections.open
        limit = self._connections.limits.connections
        if len(open_ones) >= limit and not self._connections.make_room():
            log.warning("rejected a connection of %s: %d are open", self.peer, limit)
            transport.abort()
            return
        open_ones.add(self)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._wait(self._connections.limits.ping_timeout_s)
        self._flush()

    def data_received(self, data: bytes) -> None:
        now = self.heard_at = self._clock()
        self._is_receiving = True
        self._connections.begin_read()
        try:
            self._grpc.receive(data, now)
        finally:
            self._connections.end_read()
            self._is_receiving = False
        self._flush()
        if self._grpc.http2.failure:
            self._close(self._grpc.http2.failure)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._connections.open.discard(self)
        self._grpc.lost()
        self._connections.one_ended.set()

    def pause_writing(self) -> None:
        """The peer does not read: what it asks for meanwhile would pile up here."""
        self._grpc.http2.output.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        output = self._grpc.http2.output
        output.is_paused = False
        output.resume()
        self._grpc.deliver_stalled()
        if self._transport is not None:
            self._transport.resume_reading()
        self._flush()

    # The end

    def leave(self) -> None:
        """Accept no more calls; close when the last one is over."""
        self._is_leaving = True
        self._grpc.http2.announce_end()
        self._flush()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _close(self, reason: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            log.warning("the connection of %s was closed: %s", self.peer, reason)
            self._transport.close()

    # Output

    def _flush_soon(self) -> None:
        if not self._is_receiving and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._transport is None:
            return
        data = self._grpc.http2.output.take()
        if data:
            self._transport.write(data)
        if self._is_leaving and not len(self._grpc):
            self._transport.close()

    # Time

    def _wait(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._check_silence)

    def _check_silence(self) -> None:
        """Ping a silent peer, and cut one that stays silent."""
        limits = self._connections.limits
        silent_s = self._clock() - self.heard_at
        if not self._grpc.http2.is_greeted:
            self._close("it sent no HTTP/2")
            return
        if silent_s < limits.ping_after_s:
            self._is_pinging = False
            self._wait(limits.ping_after_s - silent_s)
        elif self._is_pinging and silent_s >= limits.ping_after_s + limits.ping_timeout_s:
            log.warning("%s does not answer; its connection is cut", self.peer)
            self.abort()
        else:
            if not self._is_pinging:
                self._is_pinging = True
                self._grpc.http2.ping()
                self._flush()
            self._wait(limits.ping_timeout_s)
