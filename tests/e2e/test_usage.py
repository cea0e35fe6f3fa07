"""What is counted is what the servers count, over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extproc.demo.model import ModelShape
from extproc.usage.ended_tasks import PATIENCE_S as UNDECIDED_S
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, MODEL_SHAPE, Stack, chat, until
from tests.fakes.patience import PATIENCE_S
from tests.long_run import in_long_run

pytestmark = [pytest.mark.e2e, pytest.mark.llama, pytest.mark.timeout(600)]

REQUESTS = 80
LEFT = 20
"""There are more requests until this number of clients left, where some do: a tenth of them may be
seen by no scrape."""
EXACT, ESTIMATED = 0.001, 0.05
"""How far off the sums may be: of whole responses, and of all where the servers' counters are read;
and with clients that leave where they are not, so that for some the last scrape before their slot
is used again decides."""
BUSY, CALM = (4, (2, 4)), (2, (4, 4))
"""The number of clients at once, and the servers' slots. Estimates need slots that stay idle until
a scrape has seen them, also on a busy machine: servers take the one that is idle for longest."""
LONGEST_IDLE = ("--metrics", "--slot-prompt-similarity", "0")
QUICKER = ModelShape(embedding=128, layers=4)
"""Whole responses have as many tokens, in less time. Who leaves one is seen by a scrape or not, so
they take their time."""
MAX_TOKENS = 160
MAX_PROMPT = 300


def bodies(random: Random) -> tuple[str, dict[str, Any]]:
    """A path and a body: one of each API, as a stream and whole."""
    is_stream = random.random() < 0.6
    tokens = random.randrange(20, MAX_TOKENS)
    text = "row " * random.randrange(1, 60)
    messages = [{"role": "user", "content": text}]
    common = {"stream": is_stream, "ignore_eos": True}
    return random.choice(
        [
            (CHAT, {"messages": messages, "max_tokens": tokens, **common}),
            (
                CHAT,
                {
                    "messages": messages,
                    "max_tokens": tokens,
                    **common,
                    **({"stream_options": {"include_usage": True}} if is_stream else {}),
                },
            ),
            ("/v1/completions", {"prompt": text, "max_tokens": tokens, **common}),
            ("/completion", {"prompt": text, "n_predict": tokens, **common}),
            ("/v1/messages", {"messages": messages, "max_tokens": tokens, **common}),
            ("/v1/responses", {"input": text, "max_output_tokens": tokens, **common}),
        ]
    )


@dataclass
class Sums:
    requests: int = 0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    uncounted: int = 0


async def servers_counts(stack: Stack) -> Sums:
    """The sums of the servers' own counters."""
    sums = Sums()
    for server in stack.servers:
        text = (await stack.client.get(f"http://{server.address}/metrics")).text
        found = dict(line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
        cached = int(found["llamacpp:prompt_tokens_cached_total"])
        sums.prompt += int(found["llamacpp:prompt_tokens_total"]) + cached
        sums.cached += cached
        sums.generated += int(found["llamacpp:tokens_predicted_total"])
    return sums


def saved(path: Path) -> Sums:
    """What is in the file by now."""
    with sqlite3.connect(path) as file:
        row = file.execute(
            "SELECT SUM(requests), SUM(prompt_tokens), SUM(cached_tokens), SUM(generated_tokens), "
            "SUM(uncounted) FROM usage"
        ).fetchone()
    return Sums(*(value or 0 for value in row))


def differences(found: Sums, truth: Sums, tolerance: float) -> list[str]:
    """The sums that are further off than the tolerance. Requests that are said to be uncounted may
    have had as many tokens as any."""
    missing = {"prompt": MAX_PROMPT * found.uncounted, "generated": MAX_TOKENS * found.uncounted}
    return [
        name
        for name, most in missing.items()
        if not -tolerance * getattr(truth, name)
        <= getattr(truth, name) - getattr(found, name)
        <= tolerance * getattr(truth, name) + most
    ]


def is_close(found: int, truth: int) -> bool:
    return abs(found - truth) <= EXACT * truth


async def ask(stack: Stack, random: Random, leaving: float) -> bool:
    """One request on a connection of its own; returns whether its client left."""
    path, body = bodies(random)
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
        f"x-gateway-inference-objective: {random.choice('ab')}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    patience_s = random.uniform(0.01, 0.5) if random.random() < leaving else None
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
    try:
        writer.write(head.encode() + data)
        async with asyncio.timeout(patience_s):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
    except TimeoutError:
        return True
    finally:
        writer.transport.abort()
    return False


@pytest.mark.parametrize(
    ("leaving", "reads", "tolerance", "load"),
    [
        (0.0, False, EXACT, BUSY),
        pytest.param(0.3, False, ESTIMATED, CALM, marks=in_long_run),
        (0.5, True, EXACT, BUSY),
    ],
)
async def test_tokens_are_those_that_the_servers_count(
    llama: None,
    tmp_path: Path,
    leaving: float,
    reads: bool,
    tolerance: float,
    load: tuple[int, tuple[int, int]],
) -> None:
    """Over all APIs, streamed and whole, also with clients that leave at any moment: exactly, where
    the servers' counters are read."""
    clients, slots = load
    path = tmp_path / "usage.db"
    usage = {"path": str(path), "read_counters": reads}
    settings = {**QUICK, "usage": usage, "objectives": {"a": {}, "b": {}}}
    async with Stack.running(
        tmp_path,
        slots=slots,
        shapes=(MODEL_SHAPE if leaving else QUICKER,) * 2,
        flags=(LONGEST_IDLE if load is CALM else ("--metrics",),) * 2,
        settings=settings,
    ) as stack:
        random = Random(7)
        asked = left = 0

        async def client() -> None:
            nonlocal asked, left
            while asked < REQUESTS or (leaving and left < LEFT):
                asked += 1
                has_left = await ask(stack, random, leaving)
                left += has_left

        await asyncio.gather(*(client() for _ in range(clients)))

        async def are_idle() -> bool:
            return not any(await stack.busy())

        await until(are_idle)
        truth = await servers_counts(stack)

        async def is_counted() -> bool:
            found = saved(path)
            is_rest = found.uncounted or not is_close(found.cached, truth.cached)
            return not differences(found, truth, tolerance) and not (reads and is_rest)

        try:
            await until(is_counted, UNDECIDED_S + PATIENCE_S)
        except TimeoutError:
            pytest.fail(f"{saved(path)} of {truth}; {left} clients left")
        passed = (await stack.status())["outcomes"].get("passed", 0)
        rejected = await stack.client.post(
            stack.url(CHAT), json=chat(1), headers={"x-coxswain-queue-timeout-ms": "soon"}
        )
        assert rejected.status_code == 400
        await stack.until(lambda status: status["outcomes"].get("bad-request") == 1)
        assert stack.picker is not None
        assert (await stack.status())["outcomes"].get("passed", 0) == passed
        assert "observability" not in stack.picker.log.read_text()
        await stack.picker.stop()  # which counts the rest by what is known
    assert not differences(saved(path), truth, tolerance)
    # What was cached of a prompt is unknown if its client left before a scrape saw it; and if it
    # left while the server read the prompt, a scrape saw what the server does not count.
    if reads:
        assert is_close(saved(path).cached, truth.cached)
        assert saved(path).uncounted == 0
    else:
        most = truth.cached * (1.1 if leaving else 1.0)
        assert 0.9 * truth.cached <= saved(path).cached <= most
        assert saved(path).uncounted <= left / 10


async def test_a_picker_that_stops_delays_no_response(llama: None, tmp_path: Path) -> None:
    """Frozen or killed in the middle of a long stream, whose parts nobody takes any more."""
    settings = {**QUICK, "usage": {"path": str(tmp_path / "usage.db")}}
    async with Stack.running(tmp_path, slots=(2,), shapes=(QUICKER,), settings=settings) as stack:
        streams = [await stack.hold() for _ in range(2)]
        stack.freeze(stack.picker)
        for stream in streams:
            for _ in range(1000):  # more than the flow control of one stream lets pass
                assert await stream.next_chunk()
        assert stack.picker is not None
        await stack.kill(stack.picker)
        for stream in streams:
            for _ in range(200):
                assert await stream.next_chunk()
            await stream.leave()
        await stack.restart_picker()
        await stack.until_ready()
        assert (await stack.ask()).status_code == 200
