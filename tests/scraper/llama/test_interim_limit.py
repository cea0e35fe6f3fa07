"""Claims about scraper/llama/interim_limit.py, by what the client makes of real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpcore
import pytest

from scraper.llama.client import Answer, Failure, FailureKind, LlamaClient
from scraper.llama.interim_limit import MAX_INTERIM_BYTES, InterimLimitStream
from scraper.target import EndpointTarget
from tests.fakes.listener import Listener
from tests.fakes.patience import PATIENT

ENDLESS = replace(PATIENT, read_s=3600.0, slots_read_s=3600.0)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
FINAL = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


@asynccontextmanager
async def server(answer: bytes, *, goes_on: bool) -> AsyncIterator[LlamaClient]:
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
    client = LlamaClient(EndpointTarget(address=await listener.start()), ENDLESS, time.monotonic)
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
