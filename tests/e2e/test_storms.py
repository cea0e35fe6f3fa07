"""Clients without manners and failures in a row: over real Envoy and real llama-servers.

After each storm the books are what really runs, nobody waits, and no exchange is left over.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.constant_load import PAUSE_S
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.long_run import in_each_mode

pytestmark = shares("llama-servers")

JSON = "application/json"
FEW = 40
"""Enough of anything to fill every slot several times."""


def head(length: int, content_type: str = JSON, *more: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "host: test", f"content-type: {content_type}"]
    return "\r\n".join([*lines, *more, f"content-length: {length}", "", ""]).encode("latin-1")


def request(max_tokens: int, *, padding: int = 0, stream: bool = True) -> bytes:
    body = json.dumps(chat(max_tokens, stream=stream) | {"padding": "x" * padding}).encode()
    return head(len(body)) + body


@asynccontextmanager
async def connections(
    stack: Stack, first: bytes, count: int
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many clients who said `first`; then they vanish without a word."""
    writers = []
    try:
        readers = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
            readers.append(reader)
            writers.append(writer)
            writer.write(first)
        yield readers
    finally:
        for writer in writers:
            writer.transport.abort()


async def until_calm(stack: Stack) -> None:
    """The servers rest, the ledger knows, nobody waits, and the picker keeps nothing."""

    async def is_calm() -> bool:
        status = await stack.status()
        slots = [one["slots"] for one in status["endpoints"].values()]
        return (
            status["exchanges"] == 0
            and not any(one["leased"] or one["foreign"] for one in slots)
            and not any(await stack.busy())
        )

    await until(is_calm)
    assert (await stack.ask()).status_code == 200


def said(stack: Stack) -> str:
    """All that the pickers of this stack have written."""
    return "".join(log.read_text() for log in stack.folder.glob("picker-*.log"))


@pytest.mark.parametrize("content_type", [JSON, "multipart/form-data; boundary=x"])
async def test_a_body_that_never_comes_takes_no_slot(stack: Stack, content_type: str) -> None:
    """Others are served meanwhile; Envoy ends it after `envoy.request_body_timeout_s`."""
    async with connections(stack, head(10**12, content_type) + b'{"messages":', FEW):
        await stack.until(lambda status: status["exchanges"] == FEW)
        assert (await stack.status())["running"] == 0
        assert not any(one["leased"] for one in (await stack.slots()).values())
        assert (await stack.ask()).status_code == 200
    await until_calm(stack)


@pytest.mark.parametrize("padding", [0, 300_000, 3_000_000])
async def test_who_leaves_the_queue_leaves_nothing_there(stack: Stack, padding: int) -> None:
    """However much of the body came, or is still on its way."""
    await leave_the_queue(stack, padding)


@in_each_mode
@pytest.mark.parametrize("padding", [0, 3_000_000])
async def test_who_leaves_it_where_headers_decide_leaves_nothing_either(
    mode: str, stacks: StackPool, padding: int
) -> None:
    """Held at the headers: the body waits in Envoy."""
    settings = {**QUICK, "routing": {"read_body": "never"}}
    async with stacks.lend(slots=(1, 1), kind="simulator", settings=settings, mode=mode) as stack:
        await leave_the_queue(stack, padding)


async def leave_the_queue(stack: Stack, padding: int) -> None:
    held = await stack.fill()
    async with connections(stack, request(1, padding=padding), 5):
        await stack.until_waiting(5)
    await stack.until_waiting(0)
    for one in held:
        await one.leave()
    await until_calm(stack)


async def test_a_storm_of_clients_who_do_not_wait(stack: Stack) -> None:
    """They leave at every point: before the pick, in the line, in the middle of an answer."""
    random = Random(7)
    loop = asyncio.get_running_loop()

    async def come_and_go() -> None:
        async with connections(stack, request(50), 1) as (reader,):
            patience = loop.create_future()
            loop.call_later(random.choice((0, 0.003, 0.03, 0.3)), patience.set_result, None)
            first = asyncio.create_task(reader.read(1))
            await asyncio.wait({first, patience}, return_when=asyncio.FIRST_COMPLETED)
            first.cancel()

    for _ in range(10):
        await asyncio.gather(*(come_and_go() for _ in range(FEW)))
    await until_calm(stack)
    assert "Traceback" not in said(stack)


@pytest.mark.parametrize("count", [90, 200])
async def test_a_request_with_too_many_headers_is_rejected_in_words(
    stack: Stack, count: int
) -> None:
    """Envoy allows a hundred; with 90 there is no room for its own and the picker's beside them.

    Of more than it allows it reads no further, and no picker can be asked about them.
    """
    many = {f"x-header-{number}": "y" for number in range(count)}
    answer = await stack.ask(headers=many)
    assert answer.status_code == 431
    assert answer.headers["x-coxswain-reason"] == "too-many-headers"
    assert answer.json()["error"]["code"] == "too-many-headers"
    await until_calm(stack)


async def test_foreign_requests_on_the_pickers_ports_are_one_line_each(stack: Stack) -> None:
    """Nothing of what they sent is written, for it may be a key."""
    secret = b"authorization: Bearer sk-secret"
    for port in (stack.grpc_port, stack.admin_port, stack.http_port):
        for noise in (os.urandom(2000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(500)):
            for sent in (noise, b"GET / HTTP/1.1\r\n" + secret + b"\r\nsk-secret\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                writer.write_eof()
                with suppress(ConnectionResetError):
                    await reader.read()
                writer.close()
    await until_calm(stack)
    assert "Traceback" not in said(stack) and "sk-secret" not in said(stack)


@in_each_mode
async def test_parts_die_in_any_order_and_the_books_are_right_again(
    llama: None, mode: str, tmp_path: Path
) -> None:
    """Under load: each request is answered, refused in words, or cut with its connection."""
    random = Random(3)
    settings = {**QUICK, "drain_timeout_s": 0.5}
    async with Stack.running(tmp_path, slots=(2, 2), settings=settings, mode=mode) as stack:
        is_over = False

        async def load() -> None:
            while not is_over:
                try:
                    answer = await stack.ask(random.randrange(1, 40))
                except httpx.TransportError:
                    await asyncio.sleep(PAUSE_S)  # nobody listens: be patient
                    continue
                assert answer.status_code == 200 or answer.json()["error"]["code"], answer
                await asyncio.sleep(PAUSE_S)

        tasks = [asyncio.create_task(load()) for _ in range(8)]
        for victim in ("server", "picker", "envoy", "server and picker"):
            server = random.choice(stack.servers)
            if "server" in victim:
                await stack.kill(server.child)
            if "picker" in victim:
                await stack.kill(stack.picker)
                await stack.restart_picker()
            if victim == "envoy":
                await stack.kill(stack.envoy)
                await stack.start_envoy(mode)
            if "server" in victim:
                await stack.start_server(server)
            await stack.until_ready()
        is_over = True
        await asyncio.gather(*tasks)
        await until_calm(stack)
        assert "Traceback" not in said(stack)
