"""`coxswain serve` with fronts behind the real Envoy, before servers that account for requests."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from extproc.demo.process import Children
from tests.e2e.stack import Server, Stack, until
from tests.fakes.accounting import CHAT, Account, AccountingServer, load, telling_when_read
from tests.fakes.http_client import Client

SLOTS = (1, 1, 2, 2, 4)
MEAN_S = 0.4


class Fronted:
    """A stack with its account."""

    def __init__(self, stack: Stack, account: Account) -> None:
        self.stack = stack
        self.account = account
        self.urls = [stack.url(CHAT)]
        """Of each Envoy."""
        self.broken_at = 0.0
        """When the fault was made."""

    async def processes(self) -> dict[str, Any]:
        """The picker's processes, by its own word; empty while no core answers."""
        try:
            status = await self.stack.status()
        except (httpx.TransportError, ValueError):
            return {}
        found: dict[str, Any] = status.get("processes") or {}
        return found

    async def pids(self, role: str) -> list[int]:
        members = (await self.processes()).get("members", [])
        return [member["pid"] for member in members if member["role"] == role]

    async def until_complete(self, fronts: int) -> None:
        """Wait until a core leads, a spare is warm and every front serves."""

        async def is_complete() -> bool:
            members = (await self.processes()).get("members", [])
            roles = sorted(member["role"] for member in members)
            return roles == sorted(["core", "spare", *["front"] * fronts])

        await until(is_complete)

    def strike(self, pid: int, number: signal.Signals) -> None:
        self.broken_at = time.monotonic()
        os.kill(pid, number)

    async def busiest(self, role: str) -> int:
        """The process of this role with the most calls."""
        found: list[dict[str, Any]] = []

        async def is_found() -> bool:
            members = (await self.processes()).get("members", [])
            found[:] = [member for member in members if member["role"] == role]
            return bool(found)

        await until(is_found)
        return int(max(found, key=lambda member: member["calls"])["pid"])

    async def run(
        self,
        *,
        offered: float,
        length_s: float,
        seed: int,
        role: str,
        number: signal.Signals,
    ) -> None:
        """Offer load, strike a process in the middle, and wait for every answer."""

        async def strike() -> None:
            picker = self.stack.picker
            assert picker is not None
            pid = picker.pid if role == "picker" else await self.busiest(role)
            self.strike(pid, number)

        await load(
            self.account,
            self.urls,
            rate=offered * sum(SLOTS) / MEAN_S,
            mean_s=MEAN_S,
            length_s=length_s,
            seed=seed,
            halfway=strike,
        )


@asynccontextmanager
async def fronted(
    folder: Path,
    *,
    fronts: int | str | None = 2,
    mode: str = "discovery",
    settings: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    envoys: int = 1,
) -> AsyncIterator[Fronted]:
    """Everything up and ready, everything gone afterwards. Envoy waits as long as by default.
    `headers` are those of the stack's own requests. Several Envoys have a front each."""
    account = Account()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with AsyncExitStack() as exits:
        servers = [
            await exits.enter_async_context(AccountingServer(account, count)) for count in SLOTS
        ]
        children = await exits.enter_async_context(Children(folder))
        client = await exits.enter_async_context(Client(timeout=60, limits=limits, headers=headers))
        stack = Stack(folder, children, client)
        stack.servers += [Server(each.port, each.slots, [], client) for each in servers]
        config = {
            "envoy": {"message_timeout_s": 1.0},
            **({} if fronts is None else {"fronts": fronts}),
            **(settings or {}),
        }
        await stack.start_picker(config)
        assert stack.picker is not None
        await stack.picker.wait_ready(stack._picker_listens, timeout_s=60)
        await stack.start_envoy(mode, telling_when_read)
        found = Fronted(stack, account)
        found.urls += [
            await stack.start_another_envoy(mode, telling_when_read) + CHAT
            for _ in range(envoys - 1)
        ]
        for url in found.urls:
            await until(partial(_serves, stack, url))
        if isinstance(fronts, int):
            await found.until_complete(fronts)
        yield found


async def _serves(stack: Stack, url: str) -> bool:
    try:
        answer = await stack.client.post(url, json={"messages": []})
        status = await stack.status()
    except (httpx.TransportError, OSError, ValueError):
        return False
    ready = sum(one["health"] == "ready" for one in status["endpoints"].values())
    is_named = answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers
    return is_named and ready == len(stack.servers)


async def is_gone(pid: int) -> bool:
    """Whether no such process runs."""
    await asyncio.sleep(0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
