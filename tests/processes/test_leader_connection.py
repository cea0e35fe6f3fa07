"""Claims about extproc/processes/leader_connection.py, with TLS over loopback."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes import leader_connection
from extproc.processes.cluster_access import server_context
from extproc.processes.fronts.handshake import HandshakeError, HandshakeServer
from extproc.processes.leader_connection import connect_with_leader
from extproc.settings.cluster_section import ClusterSettings
from tests.fakes.authority import Authority
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import settle


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Caller(asyncio.Protocol):
    """What goes on with the connection: says a word, and keeps what comes back."""

    heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(b"word")

    def data_received(self, data: bytes) -> None:
        self.heard += data


class Leader:
    """Greets members with TLS, and echoes what they say then."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder)
        pair = self._authority.issue("member")
        self.cluster = ClusterSettings(
            name="c",
            valkey=("redis://127.0.0.1:1",),
            advertise="127.0.0.1:9004",
            cert_file=str(pair.cert),
            key_file=str(pair.key),
            ca_file=str(self._authority.ca),
        )
        self.fronts: list[str] = []
        self.greeted: Callable[[], object] = bool
        """Called with each greeting."""
        self.address = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        context = server_context(self.cluster)
        server = await loop.create_server(
            lambda: HandshakeServer(self._accept, loop), "127.0.0.1", 0, ssl=context
        )
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            await settle()

    def _accept(self, greeting: pb.Greeting) -> asyncio.Protocol:
        self.fronts.append(greeting.front)
        self.greeted()
        if greeting.front == "unknown":
            raise HandshakeError("nobody knows you")
        return Echo()

    async def connect(self, protocol: asyncio.Protocol, front: str = "a") -> None:
        term = {"leader": "a/1", "epoch": 3, "address": self.address}
        await connect_with_leader(
            self.cluster, term, pb.Greeting.PURPOSE_FOLLOW, lambda: protocol, front=front
        )


class EarlyContext(ssl.SSLContext):
    """Calls `at_start` as TLS begins on a connection: in the turn of the loop that made it."""

    at_start: Callable[[], object]

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        self.at_start()
        return super().wrap_bio(*args, **named)


async def test_the_protocol_goes_on_after_the_greeting(tmp_path: Path) -> None:
    leader, caller = Leader(tmp_path), Caller()
    async with leader.running():
        await leader.connect(caller)
        await eventually(lambda: caller.heard == b"word")
        caller.transport.abort()
    assert leader.fronts == ["a"]


async def test_a_rejected_member_has_no_connection(tmp_path: Path) -> None:
    leader, caller = Leader(tmp_path), Caller()
    async with leader.running():
        with pytest.raises(HandshakeError, match="nobody knows you"):
            await leader.connect(caller, "unknown")
    assert not hasattr(caller, "transport")


async def test_cancelled_as_the_leader_goes_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where TLS begins, and the leader ends the connection: no error is logged as never taken."""
    leader, caller = Leader(tmp_path), Caller()
    context = EarlyContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(leader_connection, "client_context", lambda _: context)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        leader.address = f"127.0.0.1:{listening.getsockname()[1]}"
        connecting = asyncio.ensure_future(leader.connect(caller))

        def go(cancel: Callable[[], object] = connecting.cancel) -> None:
            listening.accept()[0].close()
            loop.call_soon(cancel)

        context.at_start = go
        with pytest.raises(asyncio.CancelledError):
            await connecting
        del connecting, go  # so that nothing refers to what is left
        await settle()
        gc.collect()
    assert not caplog.records
    assert not hasattr(caller, "transport")


@pytest.mark.parametrize("has_tls", [True, False])
async def test_a_leader_that_ends_the_connection_at_once(
    tmp_path: Path, has_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that stops: the end is there before the first byte can be said."""
    leader = Leader(tmp_path)
    if not has_tls:
        no_files = {"cert_file": None, "key_file": None, "ca_file": None}
        leader.cluster = leader.cluster.model_copy(update=no_files)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        leader.address = f"127.0.0.1:{listening.getsockname()[1]}"
        connecting = asyncio.ensure_future(leader.connect(Caller()))

        def end() -> None:
            listening.accept()[0].close()

        asyncio.get_running_loop().call_soon(end)  # next, when it has only sent its SYN
        with pytest.raises(ConnectionError):
            await connecting
        await settle()
    assert not caplog.records


async def test_cancelled_while_it_greets_nothing_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leader, caller = Leader(tmp_path), Caller()
    async with leader.running():
        connecting = asyncio.ensure_future(leader.connect(caller))
        leader.greeted = connecting.cancel
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await settle()
        del connecting
        gc.collect()
    assert not caplog.records
    assert leader.fronts == ["a"]
    assert not hasattr(caller, "transport")
