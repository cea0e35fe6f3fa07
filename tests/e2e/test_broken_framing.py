"""Requests that stop being HTTP/1 in the middle: a clear 400, and nothing stays taken."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.e2e.pool import shares
from tests.e2e.stack import CHAT, Stack, chat

pytestmark = shares("one simulator")

BODY = json.dumps(chat(1)).encode()
WRONG_SIZE = b"zz\r\n"
WRONG_TRAILER = b"0\r\nnot a trailer\x00\r\n\r\n"
LARGE_TRAILER = b"0\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"


@pytest.fixture
def stack(one_simulator: Stack) -> Stack:
    return one_simulator


class Chunks:
    """A request in chunks, sent by hand; on `path`, with its first chunk."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, stack: Stack, path: str = CHAT, *, then: bytes = b"") -> Chunks:
        reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
        head = f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
        first = head.encode() + b"transfer-encoding: chunked\r\n\r\n"
        writer.write(first + b"%x\r\n%s\r\n" % (len(BODY), BODY) + then)
        return cls(reader, writer)

    def go_on(self, what: bytes) -> None:
        self._writer.write(what)

    async def rejection(self) -> tuple[int, str]:
        """The status and the reason of the answer, behind which the connection must end.

        With a reset where bytes of ours are left that Envoy has not read, a second later.
        """
        answer = b""
        try:
            while block := await self._reader.read(65_536):
                answer += block
        except ConnectionResetError:
            assert answer, "the answer must come before the reset"
        finally:
            self._writer.transport.abort()
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head:
            return 0, "no answer"
        [reason] = [line for line in head.split(b"\r\n") if line.startswith(b"x-coxswain-reason")]
        code = json.loads(body)["error"]["code"]
        assert reason.decode() == f"x-coxswain-reason: {code}"
        return int(head.split()[1]), code


async def all_is_free(stack: Stack) -> None:
    await stack.until(
        lambda status: (
            status["queue"]["queued"] == 0
            and all(one["slots"]["idle"] == 1 for one in status["endpoints"].values())
        )
    )
    assert (await stack.ask()).status_code == 200


async def test_one_that_is_broken_from_the_start(stack: Stack) -> None:
    """On paths that take a slot, and that take none. One that is closed is told so at once."""
    requests = [await Chunks.begin(stack, path, then=WRONG_SIZE) for path in (CHAT, "/tokenize")]
    rejections = await asyncio.gather(*(request.rejection() for request in requests))
    assert rejections == [(400, "malformed-http")] * 2
    await all_is_free(stack)


@pytest.mark.parametrize("read_body", ["auto"])
async def test_what_envoy_rejects_before_anybody_is_asked(stack: Stack) -> None:
    tries = (
        (b"POST /v1/chat/completions HTTP/1.1\r\n", 400),  # no host
        (b"POST /v1/chat/completions%00 HTTP/1.1\r\nhost: test\r\n", 400),
        (b"POST /v1/chat/completions#part HTTP/1.1\r\nhost: test\r\n", 400),
        (b"POST /v1/chat/\xff HTTP/1.1\r\nhost: test\r\n", 400),
        (b"POST  HTTP/1.1\r\nhost: test\r\n", 400),  # no path
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\ncontent-length: -1\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.0\r\nhost: test\r\n", 426),
        (b"POST /tokenize HTTP/1.1\r\nhost: test\r\ntransfer-encoding: x\r\n", 501),
    )

    async def rejection(first: bytes) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
        writer.write(first + b"\r\n")
        return await Chunks(reader, writer).rejection()

    rejections = await asyncio.gather(*(rejection(first) for first, _ in tries))
    assert rejections == [(status, "malformed-http") for _, status in tries]
    await all_is_free(stack)


async def test_one_that_has_its_slot_already(stack: Stack, read_body: str) -> None:
    """Where bodies are read it has none before its end: then it is the picker that has it."""
    for end, status, reason in (
        (WRONG_SIZE, 400, "malformed-http"),
        (WRONG_TRAILER, 400, "malformed-http"),
        (LARGE_TRAILER, 431, "too-many-headers"),
    ):
        request = await Chunks.begin(stack)
        if read_body == "never":
            await stack.until(lambda status: status["slots"]["leased"] == 1)
        else:
            await stack.until(lambda status: status["exchanges"] == 1)
        request.go_on(end)
        assert await request.rejection() == (status, reason)
        await all_is_free(stack)


@pytest.mark.parametrize("read_body", ["never"])  # or its body is not whole, and it does not wait
async def test_one_that_waits_in_the_queue(stack: Stack) -> None:
    """It leaves the line, and whoever stood behind it is served."""
    running = await stack.hold()
    request = await Chunks.begin(stack)
    await stack.until_waiting(1)
    behind = asyncio.create_task(stack.ask())
    await stack.until_waiting(2)
    request.go_on(WRONG_SIZE)
    assert await request.rejection() == (400, "malformed-http")
    await stack.until_waiting(1)
    await running.leave()
    assert (await behind).status_code == 200
    await all_is_free(stack)
