"""Three models and memory for one: what is not loaded waits, and swaps drop nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.constant_load import PAUSE_S
from tests.e2e.kept import KeptStack, kept
from tests.e2e.stack import CHAT, chat, until
from tests.long_run import IS_LONG_RUN

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

MODELS: dict[str, dict[str, Any]] = {"small": {"aliases": ["tiny"]}, "medium": {}, "large": {}}
LONG_TOKENS = 2_000
"""An answer that a fast machine, too, still gives when its model begins to leave."""
LOAD_S = 45.0
MIXED_S = 60.0 if IS_LONG_RUN else 20.0


async def test_a_request_loads_its_model_and_says_so(llama: None, tmp_path: Path) -> None:
    """Nothing is loaded at first; the countdown names the model; names and aliases are listed."""
    async with kept(tmp_path, MODELS, 10) as fleet:
        await fleet.until_state(small="unloaded", medium="unloaded", large="unloaded")
        listed = (await fleet.stack.client.get(fleet.stack.url("/v1/models"))).json()
        assert [one["id"] for one in listed["data"]] == ["small", "medium", "large"]
        seen: list[str] = []

        async def watch() -> None:
            url = f"http://127.0.0.1:{fleet.stack.http_port}/queue/first-request"
            while True:
                answer = await fleet.stack.client.get(url)
                if answer.status_code == 200:
                    seen.append(answer.json().get("note", ""))
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        answer = await fleet.stack.client.post(
            fleet.stack.url(CHAT),
            json={**chat(4), "model": "tiny"},
            headers={"x-request-id": "first-request"},
        )
        watching.cancel()
        fleet.check("small", answer)
        assert any(
            note.startswith("waits for small to be loaded at gpu-1, about") for note in seen
        ), seen
        status = await fleet.stack.status()
        small = next(one for one in status["models"] if one["name"] == "small")
        assert small["state"] == "loaded" and "request waited" in small["last_change"]
        for name in ("medium", "large", "small"):
            fleet.check(name, await fleet.ask(name))
            states = {name: one.state for name, one in (await fleet.models()).items()}
            assert list(states.values()).count("loaded") == 1, states


async def test_running_answers_outlive_a_swap(llama: None, tmp_path: Path) -> None:
    async with kept(tmp_path, MODELS, 10, {"swap": {"max_wait_s": 0.1}}) as fleet:
        fleet.check("large", await fleet.ask("large"))
        url = fleet.stack.url(CHAT)
        body = {**chat(LONG_TOKENS, stream=True), "model": "large"}
        async with fleet.stack.client.stream("POST", url, json=body) as held:
            lines = held.aiter_lines()
            await anext(lines)
            other = asyncio.create_task(fleet.ask("small"))
            await fleet.until_state(large="unloading")
            count = 1
            async for line in lines:
                count += bool(line)
        assert count > LONG_TOKENS, "the whole answer"
        fleet.check("small", await other)


async def test_a_conversation_goes_on_after_a_swap(llama: None, tmp_path: Path) -> None:
    """Its prompt was read before its model made way for another one."""
    more = {"save_slots": str(tmp_path / "slots")}
    async with kept(tmp_path, {"small": {}, "medium": {}}, 10, more=more) as fleet:

        async def reused(content: str) -> int:
            body = {**chat(4, content=content), "model": "small", "cache_prompt": True}
            answer = await fleet.stack.client.post(fleet.stack.url(CHAT), json=body)
            fleet.check("small", answer)
            return int(answer.json()["timings"]["cache_n"])

        story = "row the boat " * 200
        assert await reused(story) == 0
        fleet.check("medium", await fleet.ask("medium"))
        assert await reused(f"{story} and again") > 2000
        assert (tmp_path / "slots").stat().st_mode & 0o077 == 0


async def test_mixed_load_with_leaving_clients_loses_nothing(llama: None, tmp_path: Path) -> None:
    """Each answer is whole and by its own model, each wait is bounded, and memory is kept."""
    max_wait_s = 4.0
    async with kept(tmp_path, MODELS, 10, {"swap": {"max_wait_s": max_wait_s}}) as fleet:
        random = Random(7)
        served: Counter[str] = Counter()
        waits: list[float] = []
        until_s = time.monotonic() + MIXED_S
        together: set[str] = set()

        async def client(names: list[str]) -> None:
            while time.monotonic() < until_s:
                name = random.choice(names)
                if random.random() < 0.25:
                    await leaving(fleet, name, random.random() * 2.0)
                    continue
                answer = await fleet.ask(name, random.choice([1, 40, 200]))
                fleet.check(name, answer)
                assert answer.json()["usage"]["completion_tokens"] in (1, 40, 200)
                served[name] += 1
                waits.append(float(answer.headers["x-coxswain-queue-ms"]) / 1000.0)
                await asyncio.sleep(PAUSE_S)

        async def watch() -> None:
            nonlocal together
            while True:
                together = max(together, fleet.loaded_together(), key=len)
                await asyncio.sleep(0.1)

        watching = asyncio.create_task(watch())
        await asyncio.gather(
            *(client(["small", "medium", "large"]) for _ in range(3)),
            client(["small"]),
            client(["medium"]),
        )
        watching.cancel()
        assert set(served) == set(MODELS), served
        assert len(together) == 1, f"memory for one, and {together} were loaded"
        assert max(waits) < max_wait_s + LOAD_S, "nobody starved"
        await fleet.stack.until(
            lambda status: (
                all(one["slots"]["leased"] == 0 for one in status["endpoints"].values())
                and status["queue"]["queued"] == 0
            )
        )
        swaps = [one.last_change for one in (await fleet.models()).values()]
        print(f"{served}, longest wait {max(waits):.1f} s, last {swaps}")  # noqa: T201


async def leaving(fleet: KeptStack, name: str, after_s: float) -> None:
    """A client that leaves, queued or served."""
    task = asyncio.create_task(fleet.ask(name, 400))
    await asyncio.wait({task}, timeout=after_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_server_killed_in_a_swap_and_a_killed_keeper_heal(
    llama: None, tmp_path: Path
) -> None:
    """What waits is served in the end: no request that had not begun is lost."""
    async with kept(tmp_path, MODELS, 10) as fleet:
        fleet.check("small", await fleet.ask("small"))
        asked = asyncio.create_task(fleet.ask("medium"))

        async def begins() -> bool:
            return bool(fleet.pids("medium"))

        await until(begins)
        os.kill(max(fleet.pids("medium")), signal.SIGKILL)  # while it loads
        fleet.check("medium", await asked)
        asked = asyncio.create_task(fleet.ask("large"))
        await until(lambda: is_loading(fleet, "large"))
        assert fleet.keeper is not None
        os.kill(fleet.keeper.pid, signal.SIGKILL)
        await asyncio.sleep(0.5)
        await fleet.start_keeper()
        fleet.check("large", await asked)


async def is_loading(fleet: KeptStack, name: str) -> bool:
    return bool(fleet.pids(name))
