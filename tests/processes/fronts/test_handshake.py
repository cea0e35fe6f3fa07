"""Claims about extproc/processes/fronts/handshake.py, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts.handshake import (
    MAX_BYTES,
    HandshakeClient,
    HandshakeError,
    HandshakeServer,
)

HELLO = pb.Greeting(cluster="test", front="b/front-1", leader_id="a/1", epoch=3)


class Heard(asyncio.Protocol):
    """What goes on after the greeting."""

    def __init__(self, first: bytes = b"") -> None:
        self.first = first
        self.data = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.first)

    def data_received(self, data: bytes) -> None:
        self.data += data


@asynccontextmanager
async def listening(
    accept: Callable[[pb.Greeting], asyncio.Protocol],
) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HandshakeServer(accept, loop), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def greet(port: int, protocol: asyncio.Protocol, greeting: pb.Greeting = HELLO) -> None:
    loop = asyncio.get_running_loop()
    greeter = HandshakeClient(greeting, lambda: protocol, loop)
    async with asyncio.timeout(60):
        await loop.create_connection(lambda: greeter, "127.0.0.1", port)
        await greeter.done


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110  # a condition of the other side
            await asyncio.sleep(0.001)


async def test_both_go_on_with_their_own_protocols() -> None:
    """What is said at once is not lost, on either side."""
    there, here = Heard(b"from there"), Heard(b"from here")
    seen = []

    def accept(greeting: pb.Greeting) -> asyncio.Protocol:
        seen.append(greeting)
        return there

    async with listening(accept) as port:
        await greet(port, here)
        await until(lambda: (here.data, there.data) == (b"from there", b"from here"))
        assert seen == [HELLO]
        assert here.transport is not None
        here.transport.abort()


async def test_a_rejection_says_why() -> None:
    def accept(_: pb.Greeting) -> asyncio.Protocol:
        raise HandshakeError("another leader is meant")

    async with listening(accept) as port:
        with pytest.raises(HandshakeError, match="another leader is meant"):
            await greet(port, Heard())


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", (MAX_BYTES + 1).to_bytes(4, "little"), b"\x01\0\0\0\xff"]
)
async def test_what_is_no_greeting_is_never_accepted(said: bytes) -> None:
    def accept(_: pb.Greeting) -> asyncio.Protocol:
        raise AssertionError("accepted")

    async with listening(accept) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        async with asyncio.timeout(60):
            assert b"rejection" not in await reader.read()
        writer.close()


async def test_a_server_of_something_else_is_no_leader() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(HandshakeError):
        await greet(server.sockets[0].getsockname()[1], Heard())
    server.close()


async def test_a_connection_that_ends_is_no_welcome() -> None:
    async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    with pytest.raises(HandshakeError, match="ended"):
        await greet(server.sockets[0].getsockname()[1], Heard())
    server.close()
