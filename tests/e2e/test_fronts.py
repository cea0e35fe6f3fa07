"""Processes of `fronts` die under load, behind the real Envoy: nobody is refused, sent to a server
without a free slot, or overtaken. The servers and the clients account for each request.

A stack takes long to start, so one test does several things to it. The long run does each thing
that docs/cluster.md has numbers of, ten times, and prints them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.port import free_ports
from extproc.header_names import FAIRNESS_ID
from tests.e2e.fronted import Fronted, fronted, is_gone
from tests.e2e.stack import until
from tests.fakes.accounting import DIGEST, NUMBER, OBJECTIVE, SERVICE, Trace
from tests.long_run import in_long_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

OFFERED = 1.6
"""Of the fleet's capacity, so that requests are queued when the fault comes."""
LENGTH_S = 2.5
LONG_OFFERED, LONG_LENGTH_S, RUNS = 1.2, 6.0, 10
UPLOADS, WHOLE, PIECES, BODY_BYTES = 30, 13, 8, 200_000
"""Bodies are longer than what Envoy can send again. Some are whole when the fault comes, and more
than there are slots; of the others half is sent."""
HEADERS_ONLY = {"routing": {"read_body": "never"}}

REASONS = {signal.SIGKILL: "ended", signal.SIGTERM: "left", signal.SIGSTOP: "hung"}


async def strike(stack: Fronted, role: str, number: signal.Signals, seed: int = 1) -> None:
    """Offer load, strike a process in the middle, and wait until all is well again."""
    stack.account.traces.clear()
    await stack.run(offered=OFFERED, length_s=LENGTH_S, seed=seed, role=role, number=number)
    await stack.until_complete(2)


def assert_exact(stack: Fronted) -> None:
    account = stack.account
    text = account.describe(stack.broken_at)
    assert not account.unanswered(), (text, account.unanswered()[:3])
    assert not account.over(), text
    assert not account.overtaken(), text


async def strike_core(stack: Fronted, number: signal.Signals) -> None:
    before = (await stack.processes())["takeovers_by_reason"][REASONS[number]]
    await strike(stack, "core", number)
    assert_exact(stack)
    assert not stack.account.blind(stack.broken_at), stack.account.describe(stack.broken_at)
    processes = await stack.processes()
    assert processes["takeovers_by_reason"][REASONS[number]] > before
    assert processes["last_takeover"]["fronts"] == 2


async def until_calm(stack: Fronted) -> None:
    """No lease, no queued request and no exchange is left."""

    async def is_calm() -> bool:
        try:
            status = await stack.stack.status()
        except (httpx.TransportError, ValueError):
            return False
        slots: dict[str, Any] = status["slots"]
        return not (status["exchanges"] or slots["leased"] or slots["foreign"])

    await until(is_calm)
    await stack.stack.check_audit()


async def all_pids(stack: Fronted) -> list[int]:
    pids = [pid for role in ("core", "spare", "front") for pid in await stack.pids(role)]
    assert len(pids) == 4
    return pids


async def until_gone(pids: Sequence[int]) -> None:
    for pid in pids:
        await until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


async def reload_brings_another_spare(stack: Fronted) -> None:
    """Which knows them when it leads: here the other names of models."""
    [spare] = await stack.pids("spare")
    config = stack.stack.config
    config.write_text(config.read_text() + "\ndrain_timeout_s: 7\nmodels: {chat: tiny}\n")
    assert stack.stack.picker is not None
    os.kill(stack.stack.picker.pid, signal.SIGHUP)
    await until_gone([spare])
    await stack.until_complete(2)
    assert "settings reloaded: drain_timeout_s, models" in stack.stack.picker.log.read_text()


async def port_that_is_taken_is_said_once(stack: Fronted, folder: Path) -> None:
    """The first core cannot begin: all processes end, with its exit code."""
    [free] = free_ports(1)
    other = folder / "other.yaml"
    text = stack.stack.config.read_text()
    other.write_text(text.replace(f":{stack.stack.grpc_port}", f":{free}"))
    first, config = stack.stack.picker, stack.stack.config
    stack.stack.config = other
    await stack.stack.restart_picker()
    second = stack.stack.picker
    assert second is not None
    assert await second.wait() == 1
    assert "cannot listen on" in second.log_tail()
    assert "Traceback" not in second.log_tail()
    stack.stack.picker, stack.stack.config = first, config


def counted(path: Path) -> tuple[int, int, int]:
    """Requests, generated tokens, and requests without counts, in the file of usage."""
    with sqlite3.connect(path) as file:
        query = (
            "SELECT SUM(requests), SUM(generated_tokens), SUM(uncounted) FROM usage "
            "WHERE objective = ?"
        )
        requests, tokens, uncounted = file.execute(query, (OBJECTIVE,)).fetchone()
    return requests or 0, tokens or 0, uncounted or 0


async def test_who_is_lost_costs_nobody_anything_and_is_replaced(tmp_path: Path) -> None:
    """Bodies are read and usage is counted. Queued requests of a killed front keep their places."""
    settings = {
        "usage": {"path": str(tmp_path / "usage.db")},
        "objectives": {OBJECTIVE: {}},
    }
    async with fronted(tmp_path, settings=settings) as stack:
        await strike_core(stack, signal.SIGKILL)
        await until_calm(stack)
        asked = len(stack.account.traces)

        async def is_counted() -> bool:
            await asyncio.sleep(0)
            return counted(tmp_path / "usage.db")[0] >= asked - LOST_AT_MOST

        await until(is_counted)
        requests, tokens, uncounted = counted(tmp_path / "usage.db")
        assert requests <= asked, "each is counted once"
        assert tokens == TOKENS * (requests - uncounted) and uncounted <= LOST_AT_MOST
        await strike(stack, "front", signal.SIGKILL)
        assert_exact(stack)
        await until_calm(stack)
        await reload_brings_another_spare(stack)
        pids = await all_pids(stack)
        picker = stack.stack.picker
        assert picker is not None
        os.kill(pids[-1], signal.SIGSTOP)
        os.kill(picker.pid, signal.SIGKILL)
        assert await picker.wait() == -signal.SIGKILL
        await until_gone(pids)


TOKENS = 7
"""Of each answer."""
LOST_AT_MOST = 25
"""Counts that a core had not saved when it was killed: those of half a second."""


async def test_who_leaves_costs_nobody_anything_in_full_duplex(tmp_path: Path) -> None:
    async with fronted(tmp_path, mode="gateway") as stack:
        await strike_core(stack, signal.SIGKILL)
        await strike(stack, "front", signal.SIGTERM)
        assert_exact(stack)
        await until_calm(stack)
        await port_that_is_taken_is_said_once(stack, tmp_path)
        pids = await all_pids(stack)
        picker = stack.stack.picker
        assert picker is not None
        stack.account.traces.clear()
        # Running requests end before the processes do.
        await stack.run(offered=0.5, length_s=2.0, seed=1, role="picker", number=signal.SIGTERM)
        assert all(one.status == 200 for one in stack.account.traces.values() if one.arrived_at)
        assert await picker.wait() == 0
        await until_gone(pids)


async def test_what_is_frozen_is_replaced_and_costs_nobody_anything(tmp_path: Path) -> None:
    """Also not who came to a frozen front, which nobody has seen."""
    async with fronted(tmp_path, settings=HEADERS_ONLY, envoys=2) as stack:
        await strike_core(stack, signal.SIGSTOP)
        await until_calm(stack)
        await strike(stack, "front", signal.SIGSTOP)
        assert_exact(stack)
        await until_calm(stack)


@pytest.mark.parametrize("read_bytes", [BODY_BYTES // 4, 2 * BODY_BYTES])
async def test_long_bodies_find_another_front(tmp_path: Path, read_bytes: int) -> None:
    """Envoy cannot open their streams again, so it asks once more. Those that have a server, those
    that are queued, whole or not, and those that no front has read to the end get there whole,
    once, and by the picker's word."""
    settings = {"envoy": {"body_buffer_bytes": read_bytes, "request_body_min_rate_bytes_per_s": 0}}
    async with fronted(tmp_path, settings=settings) as stack:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            await strike_uploads(
                stack, number, queued=WHOLE if read_bytes > BODY_BYTES else UPLOADS
            )
            text = stack.account.describe(stack.broken_at)
            assert not stack.account.spoiled(), text
            assert not stack.account.unanswered(), (text, stack.account.unanswered()[:3])
            assert not stack.account.over(), text
            await stack.until_complete(2)
            await until_calm(stack)


async def strike_uploads(stack: Fronted, number: signal.Signals, *, queued: int) -> None:
    """Strike the front that has them when this many run or are queued."""
    stack.account.traces.clear()
    is_struck = asyncio.Event()
    uploads = [
        asyncio.create_task(
            upload(stack, index, None if index < WHOLE else is_struck, is_sized=bool(index % 2))
        )
        for index in range(UPLOADS)
    ]

    async def have_come() -> bool:
        status = await stack.stack.status()
        found = status["slots"]["leased"] + status["queue"]["queued"]
        return bool(found == queued and status["exchanges"] == UPLOADS)

    await until(have_come)
    stack.strike(await stack.busiest("front"), number)
    is_struck.set()
    await asyncio.gather(*uploads)


async def upload(
    stack: Fronted, number: int, goes_on: asyncio.Event | None, *, is_sized: bool
) -> None:
    """One chat request in pieces, the second half of them when it `goes_on`."""
    trace = stack.account.traces[number] = Trace(number)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * BODY_BYTES}]})
    headers = {
        NUMBER: str(number),
        FAIRNESS_ID[0]: str(number),
        SERVICE: "0.5" if goes_on is not None else "4",
        DIGEST: sha256(body.encode()).hexdigest(),
        "content-type": "application/json",
    }
    if is_sized:
        headers["content-length"] = str(len(body))

    async def pieces() -> AsyncIterator[bytes]:
        size = -(-len(body) // PIECES)
        for index in range(PIECES):
            if goes_on is not None and index == PIECES // 2:
                await goes_on.wait()
            yield body[index * size : (index + 1) * size].encode()
            await asyncio.sleep(0.1)

    trace.sent_at = time.monotonic()
    answer = await stack.stack.client.post(stack.urls[0], content=pieces(), headers=headers)
    trace.status, trace.problem = answer.status_code, answer.text[:200]
    trace.is_named = "x-coxswain-endpoint" in answer.headers


async def test_the_account_shows_when_a_picker_is_lost(tmp_path: Path) -> None:
    """The control: without fronts Envoy goes on blindly, and the measurement says so."""
    async with fronted(tmp_path, fronts=None) as stack:
        stack.account.traces.clear()
        await stack.run(
            offered=OFFERED, length_s=LENGTH_S, seed=1, role="picker", number=signal.SIGKILL
        )
        assert stack.account.blind(stack.broken_at)
        assert stack.account.over()


MATRIX = [
    ("bodies", "discovery", {}, 1, "core", signal.SIGKILL),
    ("bodies", "discovery", {}, 1, "core", signal.SIGTERM),
    ("bodies", "discovery", {}, 1, "core", signal.SIGSTOP),
    ("full duplex", "gateway", {}, 1, "core", signal.SIGKILL),
    ("bodies", "discovery", {}, 1, "spare", signal.SIGKILL),
    ("bodies", "discovery", {}, 1, "spare", signal.SIGSTOP),
    ("bodies", "discovery", {}, 1, "spare", signal.SIGTERM),
    ("bodies", "discovery", {}, 1, "front", signal.SIGKILL),
    ("headers only", "discovery", HEADERS_ONLY, 1, "front", signal.SIGKILL),
    ("full duplex", "gateway", {}, 1, "front", signal.SIGKILL),
    ("bodies", "discovery", {}, 1, "front", signal.SIGTERM),
    ("headers only", "discovery", HEADERS_ONLY, 1, "front", signal.SIGTERM),
    ("full duplex", "gateway", {}, 1, "front", signal.SIGTERM),
    ("bodies", "discovery", {}, 1, "front", signal.SIGSTOP),
    ("headers only", "discovery", HEADERS_ONLY, 1, "front", signal.SIGSTOP),
    ("full duplex", "gateway", {}, 1, "front", signal.SIGSTOP),
    ("headers only", "discovery", HEADERS_ONLY, 2, "front", signal.SIGKILL),
    ("headers only", "discovery", HEADERS_ONLY, 2, "front", signal.SIGSTOP),
    ("bodies", "discovery", {}, 2, "core", signal.SIGSTOP),
]


@in_long_run
@pytest.mark.parametrize(("name", "mode", "settings", "envoys", "role", "number"), MATRIX)
async def test_ten_runs_of_each_kill(
    tmp_path: Path,
    name: str,
    mode: str,
    settings: dict[str, Any],
    envoys: int,
    role: str,
    number: signal.Signals,
) -> None:
    """Prints the numbers of docs/cluster.md."""
    over, overtaken, refused, pauses = [], [], [], []
    async with fronted(tmp_path, mode=mode, settings=settings, envoys=envoys) as stack:
        for seed in range(RUNS):
            account = stack.account
            account.traces.clear()
            await stack.run(
                offered=LONG_OFFERED, length_s=LONG_LENGTH_S, seed=seed, role=role, number=number
            )
            over.append(len(account.over()))
            overtaken.append(len(account.overtaken()))
            refused.append(len(account.unanswered()))
            pauses.append(round(account.longest_pause(stack.broken_at), 2))
            await stack.until_complete(2)
            await until_calm(stack)
    text = f"over {over}, overtaken {overtaken}, refused {refused}, pauses {pauses}"
    print(f"\n{role}, {number.name}, {name}, {envoys} Envoys: {text}")  # noqa: T201 - it is what it is for
    assert not any(over)
    assert not any(overtaken)
    if role != "front" or number is signal.SIGTERM:
        assert not any(refused)
