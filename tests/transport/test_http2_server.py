"""Claims about extproc/transport/http2_server.py and protocol.py, over loopback sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from extproc.transport import Call, CallHandler, ServiceTable
from extproc.transport.certificates import CertificateFiles, Certificates
from extproc.transport.http2.frames import GOAWAY, PING, PREFACE, settings
from extproc.transport.http2_server import Http2Server
from extproc.transport.limits import TransportLimits
from tests.fakes.authority import Authority
from tests.fakes.envoy_stream import eventually
from tests.long_run import IS_LONG_RUN
from tests.transport.peer import Echo

STREAMS = 10_000 if IS_LONG_RUN else 2_000


class Served:
    """A server with one method, and the handlers of its calls."""

    def __init__(self) -> None:
        self.handlers: list[Echo] = []
        self.table: ServiceTable = {"/test/Echo": self._open}
        self.now = time.monotonic()
        self.port = 0

    def _open(self, call: Call) -> CallHandler:
        self.handlers.append(Echo(call))
        return self.handlers[-1]

    def clock(self) -> float:
        return self.now


@asynccontextmanager
async def served(
    limits: TransportLimits | None = None, tls: Callable[[], ssl.SSLContext] | None = None
) -> AsyncIterator[tuple[Served, Http2Server]]:
    subject = Served()
    server = Http2Server(subject.table, subject.clock, limits, tls)
    subject.port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        yield subject, server
    finally:
        await server.stop(0.0)


Method = grpc.aio.StreamStreamMultiCallable[bytes, bytes]


def echo(channel: grpc.aio.Channel) -> Method:
    method: Method = channel.stream_stream("/test/Echo")
    return method


async def test_grpcio_as_a_client() -> None:
    """Messages of any size, many streams at once, a cancelled call and a deadline."""
    options = [("grpc.max_receive_message_length", -1)]
    async with (
        served(TransportLimits(message_bytes=110 << 20)) as (subject, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{subject.port}", options=options) as channel,
    ):
        call = echo(channel)()
        for size in (0, 1, 70_000, 100 << 20):
            await call.write(b"x" * size)
            assert await call.read() == b"x" * size
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK

        async def one(number: int) -> None:
            stream = echo(channel)()
            await stream.write(b"%d" % number)
            assert await stream.read() == b"%d" % number
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK

        await asyncio.gather(*(one(number) for number in range(STREAMS)))
        cancelled = echo(channel)()
        await cancelled.write(b"x")
        await cancelled.read()
        cancelled.cancel()
        await eventually(lambda: subject.handlers[-1].is_gone)
        late = echo(channel)(timeout=0.05)
        assert await late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: subject.handlers[-1].is_gone)


class Peer:
    """A raw connection whose bytes are collected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.seen = b""
        self.is_closed = False
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(10_000):
                self.seen += data
        except ConnectionError:
            pass
        self.is_closed = True

    async def aclose(self) -> None:
        self.writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def raw(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    name = None if tls is None else "localhost"
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))
    try:
        yield peer
    finally:
        await peer.aclose()


async def test_a_silent_peer_is_pinged_and_then_cut() -> None:
    """Its calls end: the leases of an Envoy that vanished come back."""
    limits = TransportLimits(ping_after_s=0.05, ping_timeout_s=0.05)
    async with served(limits) as (subject, _), raw(subject.port) as peer:
        peer.writer.write(PREFACE + settings({}))
        await eventually(lambda: len(peer.seen) > 9)
        subject.now += 0.06
        await eventually(lambda: bytes([PING, 0, 0, 0, 0, 0]) in peer.seen)
        assert not peer.is_closed
        subject.now += 1.0
        await eventually(lambda: peer.is_closed)


async def test_who_does_not_speak_http2(caplog: pytest.LogCaptureFixture) -> None:
    """Gets a GOAWAY at its first bytes, or is closed when it says nothing; one log line each."""
    async with served(TransportLimits(ping_timeout_s=0.05)) as (subject, _):
        async with raw(subject.port) as peer:
            peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await eventually(lambda: peer.is_closed)
            assert bytes([GOAWAY, 0]) in peer.seen
        async with raw(subject.port) as silent:
            await eventually(lambda: silent.is_closed)
        assert len(caplog.records) == 2


async def test_connections_are_bounded() -> None:
    """One with a call stays. One without makes way, so that nobody keeps Envoy out by holding
    connections."""
    limits = TransportLimits(connections=1)
    async with served(limits) as (subject, _), raw(subject.port) as holder:
        await eventually(lambda: holder.seen)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{subject.port}") as channel:
            call = echo(channel)()
            await call.write(b"x")
            assert await call.read() == b"x"
            await eventually(lambda: holder.is_closed)
            async with raw(subject.port) as second:
                await eventually(lambda: second.is_closed)
                assert second.seen == b""
            await call.write(b"y")
            assert await call.read() == b"y"
            await call.done_writing()


async def test_a_stop_lets_calls_end() -> None:
    """Within its grace; no new ones are accepted meanwhile."""
    async with served() as (subject, server):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{subject.port}") as channel:
            call = echo(channel)()
            await call.write(b"x")
            assert await call.read() == b"x"
            stopping = asyncio.create_task(server.stop(20.0))
            await asyncio.sleep(0)
            await call.write(b"y")
            assert await call.read() == b"y"
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
            await stopping
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", subject.port)


async def test_a_stop_waits_no_longer_than_its_grace() -> None:
    async with (
        served() as (subject, server),
        grpc.aio.insecure_channel(f"127.0.0.1:{subject.port}") as channel,
    ):
        call = echo(channel)()
        await call.write(b"x")
        assert await call.read() == b"x"
        await server.stop(0.01)
        assert subject.handlers[0].is_gone


async def test_a_port_in_use_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Http2Server({}, time.monotonic)
        with pytest.raises(OSError, match="in use"):
            server.bind("127.0.0.1", other.getsockname()[1])
    await server.stop(0.0)


async def test_mutual_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client without a certificate of the CA, or without h2, gets nothing; renewed files count
    at the next handshake."""
    caplog.set_level(logging.WARNING)
    authority = Authority(tmp_path)
    server_pair, client = authority.issue("server"), authority.issue("client")
    certificates = Certificates(
        CertificateFiles(cert=server_pair.cert, key=server_pair.key, client_ca=authority.ca)
    )
    async with served(tls=certificates.context) as (subject, _):
        credentials = grpc.ssl_channel_credentials(
            authority.ca.read_bytes(), client.key.read_bytes(), client.cert.read_bytes()
        )
        place = f"localhost:{subject.port}"
        for _ in range(2):
            async with grpc.aio.secure_channel(place, credentials) as channel:
                call = echo(channel)()
                await call.write(b"x" * 200_000)
                assert await call.read() == b"x" * 200_000
                call.cancel()
            authority.issue("server")
        stranger = grpc.ssl_channel_credentials(authority.ca.read_bytes())
        async with grpc.aio.secure_channel(place, stranger) as channel:
            assert await echo(channel)(timeout=5.0).code() is not grpc.StatusCode.OK
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.load_cert_chain(client.cert, client.key)
        async with raw(subject.port, context) as peer:
            await eventually(lambda: peer.is_closed)
            assert peer.seen == b""
