"""The relay counts a request for as long as the server works on it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from extproc.core.address import Address
from tests.fakes.counting_relay import CountingRelay
from tests.fakes.foreign_runner import ForeignRunner
from tests.fakes.listener import Listener

PATH = "/v1/chat/completions"


async def test_requests_that_overlap_are_counted_and_others_are_not() -> None:
    """Whole responses and streams, over connections that are used again; a GET is none."""
    async with (
        ForeignRunner("openai", "m").serving() as server,
        CountingRelay(server.address).serving() as relay,
        httpx.AsyncClient(base_url=f"http://{relay.address}") as client,
    ):
        for streams in ([False], [True], [False, True, True]):
            bodies = [{"model": "m", "max_tokens": 40, "stream": stream} for stream in streams]
            answers = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
            assert {answer.status_code for answer in answers} == {200}
            assert relay.here == 0
            assert relay.most == server.most
            await client.get("/v1/models")
        assert relay.taken == server.served == 5
        assert relay.most > 1


async def test_a_request_whose_client_left_counts_until_the_server_ends_it() -> None:
    has_left, may_end = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # it sees the end
        has_left.set()
        await may_end.wait()

    listener = Listener(talk)
    async with CountingRelay(str(await listener.start())).serving() as relay:
        reader, writer = await asyncio.open_connection(*Address.parse(relay.address))
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        writer.write_eof()
        await has_left.wait()
        assert relay.here == 1
        may_end.set()
        assert await reader.read() == b""
        assert relay.here == 0
        writer.close()
    await listener.close()


async def test_a_stopped_relay_refuses_until_it_is_started_again() -> None:
    async with (
        ForeignRunner("openai", "m").serving() as server,
        CountingRelay(server.address).serving() as relay,
        httpx.AsyncClient(base_url=f"http://{relay.address}") as client,
    ):
        assert (await client.get("/v1/models")).status_code == 200
        await relay.stop()
        with pytest.raises(httpx.TransportError):
            await client.get("/v1/models")
        await relay.start()
        assert (await client.get("/v1/models")).status_code == 200
