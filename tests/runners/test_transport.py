"""Claims about extproc/runners/transport.py, mostly by what the client makes of real servers."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpcore
import httpx
import pytest

from extproc.core.address import Address
from extproc.demo.port import LOOPBACK
from extproc.runners.client import Answer, Failure, FailureKind, RunnerClient
from extproc.runners.target import EndpointTarget
from extproc.runners.transport import (
    MAX_INTERIM_BYTES,
    InterimLimitStream,
    RunnerTransport,
    no_tls,
)
from tests.fakes.listener import Listener
from tests.fakes.patience import PATIENT

ENDLESS = replace(PATIENT, read_s=3600.0, slots_read_s=3600.0)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
FINAL = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


@asynccontextmanager
async def server(answer: bytes, *, goes_on: bool) -> AsyncIterator[RunnerClient]:
    """A client of a server that says `answer` to everything, once or for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            while goes_on:
                writer.write(answer)
                await writer.drain()
                await asyncio.sleep(0)

    listener = Listener(serve)
    client = RunnerClient(EndpointTarget(address=await listener.start()), ENDLESS, time.monotonic)
    try:
        yield client
    finally:
        await client.aclose()
        await asyncio.wait_for(listener.had_no_connections(), timeout=10)
        await listener.close()


@pytest.mark.parametrize("status", [b"100", b"103", b"199"])
async def test_a_flood_of_interim_answers_is_given_up(status: bytes) -> None:
    """Long before the question's own time is over, which is an hour here."""
    async with server(INTERIM.replace(b"103", status), goes_on=True) as client:
        failure = await client.ask("/slots")
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.BROKEN


class Gone(httpcore.AsyncNetworkStream):
    """As anyio's stream is over uvloop once its socket was reset, before anything was sent."""

    def get_extra_info(self, info: str) -> object:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")


def test_a_connection_that_was_reset_as_it_was_made_is_no_error_of_its_own() -> None:
    """Nothing is known of it, and what is sent on it fails as on any other that is gone. Of 6,000
    connections that a server reset at once, nine raised it."""
    assert InterimLimitStream(Gone()).get_extra_info("ssl_object") is None


async def test_a_server_that_resets_each_connection_is_a_failure_and_raises_nothing() -> None:
    def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(reset, LOOPBACK, 0)
    target = EndpointTarget(address=Address.of(LOOPBACK, server.sockets[0].getsockname()[1]))
    try:
        for _ in range(100):
            client = RunnerClient(target, PATIENT, time.monotonic)
            assert isinstance(await client.ask("/health"), Failure)
            await client.aclose()
    finally:
        server.close()
        await server.wait_closed()


class Pieces(httpcore.AsyncNetworkStream):
    """A network on which these come, each by itself."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return next(self._pieces)


async def test_a_flood_that_holds_what_is_like_a_final_answer_is_given_up() -> None:
    """Wherever it is cut in two: only at the beginning of a line it is one."""
    sly = b"HTTP/1.1 103 Early Hints\r\nlink: HTTP/1.1 20"
    stream = InterimLimitStream(Pieces(sly, b"0\r\n" + b"x" * MAX_INTERIM_BYTES))
    await stream.read(len(sly))
    with pytest.raises(httpcore.ReadError):
        await stream.read(2 * MAX_INTERIM_BYTES)


async def test_a_few_interim_answers_before_the_real_one_are_none_of_our_business() -> None:
    """For every question on a connection again, however long the real one's body."""
    body = b"[" + b" " * 100_000 + b"]"
    async with server(INTERIM * 100 + FINAL % len(body) + body, goes_on=False) as client:
        answers = [await client.ask("/slots") for _ in range(10)]
    assert all(isinstance(answer, Answer) and answer.body == body for answer in answers)


async def test_a_connection_that_is_reset_is_an_error_of_httpx() -> None:
    """Also at the moment at which it was made: over uvloop anyio raises AttributeError then."""

    def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(reset, LOOPBACK, 0)
    url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/health"
    try:
        for _ in range(100):
            async with httpx.AsyncClient(transport=RunnerTransport(no_tls())) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url)
    finally:
        server.close()
        await server.wait_closed()
