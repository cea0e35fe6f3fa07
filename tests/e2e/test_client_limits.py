"""Limits of clients, over real Envoy, which checks the keys, and real llama-servers."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.stack import CHAT, Stack, chat, check_rate_limited, until
from tests.fakes.http_client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.llama, pytest.mark.timeout(600)]

LIMITS = {
    "web": {"requests": 3, "queued": 1},
    "eager": {"tokens_per_minute": 600},
}
WEB, EAGER, FREE = ({"authorization": f"Bearer key-of-{name}"} for name in ("web", "eager", "free"))
REQUESTS = 120
CLIENTS = 10
DURATION = re.compile(r"(\d+m)?\d+(\.\d+)?s|\d+ms")


@asynccontextmanager
async def limited_stack(folder: Path, slots: tuple[int, ...]) -> AsyncIterator[Stack]:
    """A stack that three clients use, of which one has no limits."""
    keys = folder / "keys"
    keys.write_text("".join(f"{name} key-of-{name}\n" for name in ("web", "eager", "free")))
    settings: dict[str, Any] = {
        **QUICK,
        "clients": {"keys_file": str(keys), "limits": LIMITS},
        "usage": {"path": str(folder / "usage.db")},
    }
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        ForkedChildren(folder) as children,
        Client(timeout=60, limits=limits, headers=FREE) as client,
    ):
        stack = Stack(folder, children, client)
        for count in slots:
            await stack.add_server(count, start=False)
        await stack.boot(settings)
        yield stack
        await stack.leave_all()
        await stack.check_audit()


async def test_requests_above_a_limit_are_rejected(llama: None, tmp_path: Path) -> None:
    """Of one client, for its requests at once and for its queue; the other is queued as ever."""
    async with limited_stack(tmp_path, (2,)) as stack:
        running = [await stack.hold(headers=WEB) for _ in range(2)]
        first = running[0].response.headers
        assert first["x-ratelimit-limit-requests"] == "3"
        assert first["x-ratelimit-remaining-requests"] == "2"
        queued = asyncio.create_task(stack.ask(headers=WEB))
        await stack.until_waiting(1)
        over = await stack.ask(headers=WEB)
        check_rate_limited(over, "3 requests at once")
        assert over.headers["x-ratelimit-limit-requests"] == "3"
        assert over.headers["x-ratelimit-remaining-requests"] == "0"
        assert over.headers["x-ratelimit-reset-requests"] == "1s"
        free = [asyncio.create_task(stack.ask()) for _ in range(3)]
        await stack.until_waiting(4)
        await stack.leave_all()
        assert {(await one).status_code for one in (queued, *free)} == {200}
        assert not [name for name in (await free[0]).headers if name.startswith("x-ratelimit")]

        for _ in range(2):
            await stack.hold()
        queued = asyncio.create_task(stack.ask(headers=WEB))
        await stack.until_waiting(1)
        over = await stack.ask(headers=WEB)
        check_rate_limited(over, "may queue 1 request")
        assert over.headers["x-ratelimit-remaining-requests"] == "2"
        free = [asyncio.create_task(stack.ask())]
        await stack.until_waiting(2)
        await stack.leave_all()
        assert {(await one).status_code for one in (queued, *free)} == {200}


async def test_tokens_count_after_the_response(llama: None, tmp_path: Path) -> None:
    """A client that used more than a minute's tokens waits, and then goes on."""
    async with limited_stack(tmp_path, (2,)) as stack:
        answer = await stack.ask(640, headers=EAGER)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-tokens"] == "600"
        assert answer.headers["x-ratelimit-remaining-tokens"] == "600"
        assert answer.headers["x-ratelimit-reset-tokens"] == "0s"
        used = answer.json()["usage"]["total_tokens"]

        async def is_rejected() -> bool:
            nonlocal answer, used
            answer = await stack.ask(headers=EAGER)
            if answer.status_code == 200:
                used += answer.json()["usage"]["total_tokens"]
            return answer.status_code == 429

        await until(is_rejected)
        check_rate_limited(answer, "600 tokens a minute")
        assert answer.headers["x-ratelimit-limit-tokens"] == "600"
        assert answer.headers["x-ratelimit-remaining-tokens"] == "0"
        assert DURATION.fullmatch(answer.headers["x-ratelimit-reset-tokens"])
        assert int(answer.headers["retry-after"]) <= (used - 600) / 10 + 2
        for other in (FREE, WEB):
            assert (await stack.ask(headers=other)).status_code == 200

        async def is_served() -> bool:
            return (await stack.ask(headers=EAGER)).status_code == 200

        await until(is_served)


async def ask(stack: Stack, random: Random) -> str:
    """One request on a connection of its own, which some clients leave; returns its status, ''
    for one that left or was cut off."""
    body = json.dumps(chat(random.randrange(1, 200), stream=random.random() < 0.7)).encode()
    key = random.choice([WEB, WEB, FREE])["authorization"]
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(random.uniform(0.0, 1.0) if random.random() < 0.5 else None):
            answer = await reader.read()
    except (TimeoutError, ConnectionError):
        return ""
    finally:
        writer.transport.abort()
    return answer[9:12].decode()


async def test_nothing_of_a_limit_is_lost(llama: None, tmp_path: Path) -> None:
    """After an overload whose clients leave at any moment, in which a server dies, the client has
    its whole limit, and the auditor had nothing to correct."""
    async with limited_stack(tmp_path, (2, 4)) as stack:
        random = Random(11)
        numbers = count()
        seen = Counter[str]()

        def is_enough() -> bool:
            """On a fast machine few clients leave before their answer is there."""
            is_mixed = {"200", "429"} <= seen.keys() and seen[""] > REQUESTS / 10
            return is_mixed and seen.total() >= REQUESTS

        async def client() -> None:
            while not is_enough():
                if next(numbers) == REQUESTS // 2:
                    await stack.kill(stack.servers[0].child)
                seen[await ask(stack, random)] += 1

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        assert seen["200"] and seen["429"] and seen[""] > REQUESTS / 10, seen
        assert set(seen) <= {"", "200", "429", "502", "503"}, seen

        async def is_alone() -> bool:
            answer = await stack.ask(headers=WEB)
            remaining: str | None = answer.headers.get("x-ratelimit-remaining-requests")
            return remaining == "2"

        await until(is_alone)
        for left in ("2", "1", "0"):
            held = await stack.hold(headers=WEB)
            assert held.response.headers["x-ratelimit-remaining-requests"] == left
        check_rate_limited(await stack.ask(headers=WEB), "3 requests at once")
        assert (await stack.ask()).status_code == 200
