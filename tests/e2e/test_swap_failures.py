"""Parts die in the middle of swaps, over two machines with memory for one of three models each.

No answer is another model's, and no request that had not begun is lost: it is served, or while a
picker without fronts is away it gets a 503 that says when to ask again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from extproc.demo.process import until as unbounded_until
from tests.e2e.constant_load import PAUSE_S
from tests.e2e.kept import KeptStack, Machine, kept
from tests.e2e.stack import CHAT, chat, until
from tests.long_run import IS_LONG_RUN, in_long_run

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

LONG_S = 600.0 if IS_LONG_RUN else 0.0
MODELS: dict[str, dict[str, Any]] = {"small": {}, "medium": {}, "large": {}}
SLOTS = 2
RESTART_S = 300.0
SETTLED_S = 3.0
"""Requests that were sent to a server that died end within this time."""


@dataclass
class Books:
    """Every request's end, and every kill."""

    served: Counter[str] = field(default_factory=Counter)
    left: int = 0
    waits_s: list[float] = field(default_factory=list)
    asked_again: list[tuple[float, float, str]] = field(default_factory=list)
    failed: list[tuple[float, float, str]] = field(default_factory=list)
    picker_away: list[list[float]] = field(default_factory=list)
    server_kills: list[float] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def unexplained(self) -> list[str]:
        """What no kill explains: each killed server may take the requests with it that it had
        begun, as many as it has slots; a 503 that may be repeated needs a picker that is away."""
        found = [
            f"503 without a reason at {began:.1f} to {ended:.1f}: picker away {away}: {text}"
            for began, ended, text in self.asked_again
            if not any(
                began < until_s + SETTLED_S and ended > from_s for from_s, until_s in self.away()
            )
            and not self._killed_in(began, ended)
            for away in [self.away()]
        ]
        found += [
            f"{text} at {began:.1f} to {ended:.1f}: servers killed at {self.server_kills}"
            for began, ended, text in self.failed
            if not self._killed_in(began, ended)
        ]
        allowed = SLOTS * len(self.server_kills)
        if len(self.failed) > allowed:
            found.append(f"{len(self.failed)} failed, at most {allowed} had begun: {self.failed}")
        return found

    def away(self) -> list[tuple[float, float]]:
        return [(one[0], one[1] if len(one) > 1 else float("inf")) for one in self.picker_away]

    def _killed_in(self, began: float, ended: float) -> bool:
        return any(began <= at <= ended + 0.5 for at in self.server_kills)


class Load:
    """Clients that ask for one model or another, of whom some leave, until `stop`."""

    def __init__(self, fleet: KeptStack, seed: int) -> None:
        self.fleet = fleet
        self.books = Books()
        self.random = Random(seed)
        self._is_over = False

    async def client(self, names: list[str], leaving: float) -> None:
        while not self._is_over:
            name = self.random.choice(names)
            if self.random.random() < leaving:
                await self._leave(name)
            else:
                await self._ask(name)
            await asyncio.sleep(PAUSE_S)

    async def has_served(self) -> bool:
        return bool(self.books.served)

    def stop(self) -> None:
        self._is_over = True

    async def _leave(self, name: str) -> None:
        task = asyncio.create_task(self.fleet.ask(name, 400))
        await asyncio.wait({task}, timeout=self.random.random() * 2.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.books.left += 1

    async def _ask(self, name: str) -> None:
        began, count = time.monotonic(), self.random.choice([1, 20, 100])
        books = self.books
        try:
            answer = await self.fleet.ask(name, count)
        except httpx.TransportError as error:
            books.failed.append((began, time.monotonic(), f"{name}: {error!r}"))
            return
        ended = time.monotonic()
        if answer.status_code == 200:
            content = answer.json()
            assert content["model"] == name, "an answer of another model"
            assert content["usage"]["completion_tokens"] == count
            books.served[name] += 1
            books.waits_s.append(float(answer.headers.get("x-coxswain-queue-ms", 0)) / 1000.0)
        elif answer.status_code == 503 and "retry-after" in answer.headers:
            books.asked_again.append((began, ended, answer.text[:200]))
            await asyncio.sleep(0.2)
        else:
            text = f"{name}: {answer.status_code} {answer.text[:200]}"
            books.failed.append((began, ended, text))


class Chaos:
    """Kills parts, each in the middle of a swap, and starts them again."""

    def __init__(self, fleet: KeptStack, books: Books, random: Random) -> None:
        self.fleet = fleet
        self.books = books
        self.random = random

    async def strike(self, kind: str) -> None:
        machine, name = await self._swap()
        self.books.kills[kind] += 1
        await getattr(self, f"_kill_{kind}")(machine, name)

    async def _swap(self) -> tuple[Machine, str]:
        """Wait until a server has been started that is not loaded yet, or loads again."""
        found: list[tuple[Machine, str]] = []
        async with asyncio.timeout(60):
            while not found:
                status = await self.fleet.stack.status()
                found = [
                    (machine, model["name"])
                    for machine in self.fleet.machines
                    for model in status["models"]
                    if model["machine"] == machine.name
                    and model["state"] in ("loading", "unloading")
                ]
                await asyncio.sleep(0.02)
        return found[0]

    async def _kill_picker(self, machine: Machine, name: str) -> None:
        self.books.picker_away.append([time.monotonic()])
        await self.fleet.stack.kill(self.fleet.stack.picker)
        await asyncio.sleep(self.random.random() * 1.5)
        await self.fleet.stack.restart_picker()
        await self._until_attached()
        self.books.picker_away[-1].append(time.monotonic())

    async def _kill_core(self, machine: Machine, name: str) -> None:
        """Of a picker with fronts: the spare core goes on with what the fronts hold."""
        await self._until_spare()
        await self._swap()
        members = (await self.fleet.stack.status())["processes"]["members"]
        os.kill(next(one["pid"] for one in members if one["role"] == "core"), signal.SIGKILL)
        await self._until_attached()

    async def _until_spare(self) -> None:
        """A second core that dies before there is a spare is a picker without one."""

        async def is_so() -> bool:
            status = await self._status()
            members = (status.get("processes") or {}).get("members", [])
            return {"core", "spare"} <= {one["role"] for one in members}

        async with asyncio.timeout(RESTART_S):
            await unbounded_until(is_so)

    async def _status(self) -> dict[str, Any]:
        """Empty while no core answers."""
        try:
            return await self.fleet.stack.status()
        except (httpx.TransportError, ValueError):
            return {}

    async def _until_attached(self) -> None:
        async def is_so() -> bool:
            status = await self._status()
            machines = [one for one in status.get("machines", []) if one["is_connected"]]
            return len(machines) == len(self.fleet.machines)

        async with asyncio.timeout(RESTART_S):  # a process that starts beside a full load
            await unbounded_until(is_so)

    async def _kill_keeper(self, machine: Machine, name: str) -> None:
        assert machine.keeper is not None
        self.books.server_kills.append(time.monotonic())
        await self.fleet.stack.kill(machine.keeper)
        await asyncio.sleep(self.random.random())
        await self.fleet.start_keeper(machine)
        await self._until_attached()

    async def _kill_server(self, machine: Machine, name: str) -> None:
        for pid in self.fleet.pids(name):
            self.books.server_kills.append(time.monotonic())
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.mark.timeout(1800 if LONG_S else 400)
@pytest.mark.parametrize("picker", ["picker", pytest.param("core", marks=in_long_run)])
async def test_parts_killed_in_swaps_lose_nothing_that_had_not_begun(
    llama: None, tmp_path: Path, picker: str
) -> None:
    """With fronts the picker's core is killed, and no request gets a 503 for it."""
    settings: dict[str, Any] = {"swap": {"max_wait_s": 4.0}, "queue": {"timeout_s": 120}}
    if picker == "core":
        settings["fronts"] = 2
    kinds = ["server", "keeper", picker]
    async with kept(tmp_path, MODELS, 10, settings, machines=2) as fleet:
        load = Load(fleet, seed=11)
        chaos = Chaos(fleet, load.books, Random(5))
        async with asyncio.TaskGroup() as group:
            for names in (["small", "medium", "large"], ["small", "large"], ["medium"]):
                for leaving in (0.0, 0.3):
                    group.create_task(load.client(names, leaving))
            until_s = time.monotonic() + LONG_S
            for kind in kinds:
                await chaos.strike(kind)
            while time.monotonic() < until_s:
                await asyncio.sleep(load.random.uniform(5.0, 20.0))
                await chaos.strike(load.random.choice(kinds))
            async with asyncio.timeout(RESTART_S):
                await unbounded_until(load.has_served)
            load.stop()
        books = load.books
        assert not books.unexplained(), books.unexplained()
        for name in MODELS:
            await until_served(fleet, name, await fleet.ask(name))
        changes = [one.last_change for one in (await fleet.models()).values()]
        print(  # noqa: T201
            f"served {dict(books.served)}, {books.left} left, kills {dict(books.kills)}, "
            f"{len(books.asked_again)} asked again, {len(books.failed)} begun and lost, longest "
            f"wait {max(books.waits_s):.1f} s, {changes}"
        )


async def test_a_fleet_of_several_models_answers_nothing_without_its_picker(
    llama: None, tmp_path: Path
) -> None:
    """Both models are loaded, and any server would take any name."""
    models = {"small": {"preload": True}, "medium": {"preload": True}}
    async with kept(tmp_path, models, 20) as fleet:
        for name in models:
            fleet.check(name, await fleet.ask(name))
        wrong = f"http://127.0.0.1:{fleet.ports['small']}{CHAT}"
        answer = await fleet.stack.client.post(wrong, json={**chat(1), "model": "medium"})
        assert answer.json()["model"] == "small", "an answer says which model it is from"
        body = {**chat(4000, stream=True), "model": "medium"}
        async with fleet.stack.client.stream("POST", fleet.stack.url(CHAT), json=body) as held:
            lines = held.aiter_lines()
            await anext(lines)
            await fleet.stack.kill(fleet.stack.picker)
            for name in (*models, "small", "medium"):
                answer = await fleet.ask(name)
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"] == "1"
                assert answer.json()["error"]["code"] == "NoHealthyUpstream"
            last = ""
            async for line in lines:
                last = line or last
            assert last == "data: [DONE]", "what runs goes on to its end"
        await fleet.stack.restart_picker()
        for name in models:
            served = await fleet.stack.client.post(
                fleet.stack.url(CHAT), json={**chat(4), "model": name}
            )
            await until_served(fleet, name, served)


async def until_served(fleet: KeptStack, name: str, first: httpx.Response) -> None:
    answer = first

    async def is_served() -> bool:
        nonlocal answer
        if answer.status_code == 200:
            return True
        assert answer.status_code == 503, answer.text
        answer = await fleet.ask(name)
        return False

    await until(is_served)
    assert answer.json()["model"] == name
