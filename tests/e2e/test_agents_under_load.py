"""Agents as processes: killed, paused, restarted and asked to leave while requests flow, over
real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extproc.demo.process import Child
from tests.e2e.constant_load import Load, constant_load
from tests.e2e.stack import Server, Stack
from tests.long_run import IS_LONG_RUN

pytestmark = [pytest.mark.e2e]

PAUSE_S = 10.0 if IS_LONG_RUN else 5.0
"""Longer than `agents.ttl_s`."""


def name(server: Server) -> str:
    """What its agent calls it; replies name the endpoint that served by it."""
    return f"gpu-{server.port}"


class Reported:
    """A stack whose servers are known by their agents only."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.agents: dict[str, Child] = {}
        self._generation = 0

    async def attach(self, server: Server) -> Child:
        """Start the agent of a server, in place of the one before."""
        self._generation += 1
        child = await self.stack.children.start(
            f"agent-{server.port}-{self._generation}",
            [
                *(sys.executable, "-m", "extproc.cli", "agent"),
                *("--picker", f"127.0.0.1:{self.stack.admin_port}"),
                *("--llama", f"http://{server.address}", "--advertise", f"auto:{server.port}"),
                *("--name", name(server)),
            ],
        )
        self.agents[server.address] = child
        return child

    async def until_health(self, server: Server, *health: str) -> None:
        await self.stack.until(
            lambda status: (
                status["endpoints"].get(server.address, {}).get("health", "gone") in health
            )
        )


@asynccontextmanager
async def reported(folder: Path, *slots: int) -> AsyncIterator[Reported]:
    settings: dict[str, Any] = {"endpoints": []}
    async with Stack.running(folder, slots=(), settings=settings) as stack:
        fleet = Reported(stack)
        for count in slots:
            await fleet.attach(await stack.add_server(count))
        for server in stack.servers:
            await fleet.until_health(server, "ready")
        try:
            yield fleet
        finally:
            for child in fleet.agents.values():
                if child.is_running:
                    os.kill(child.pid, signal.SIGCONT)


def signalled(child: Child, number: signal.Signals) -> None:
    os.kill(child.pid, number)


async def test_agents_killed_and_restarted_fail_no_request(llama: None, tmp_path: Path) -> None:
    async with reported(tmp_path, 2, 2) as fleet:
        first, second = fleet.stack.servers
        async with constant_load(fleet.stack) as load:
            await load.grew(3, name(first))
            await load.grew(3, name(second))
            signalled(fleet.agents[first.address], signal.SIGKILL)
            await fleet.attach(first)  # at once: nobody notices
            await load.grew(10)
            await fleet.until_health(first, "ready")
            signalled(fleet.agents[first.address], signal.SIGKILL)
            held = await fleet.stack.hold()
            await fleet.until_health(first, "down")
            served = load.served[name(first)]
            await load.grew(10, name(second))
            still_ran = load.served[name(first)] - served
            assert still_ran <= 4, "only what each client had on its way"
            status = await fleet.stack.status()
            assert status["endpoints"][first.address]["issues"][0]["code"] == "agent-silent"
            await fleet.attach(first)
            await load.grew(3, name(first))
            assert await held.next_chunk()
            await held.leave()
        await until_idle(fleet)


async def test_an_agent_that_is_paused_or_asked_to_stop_fails_no_request(
    llama: None, tmp_path: Path
) -> None:
    """Half open for a while: its endpoint is down meanwhile, and back by itself. Asked to stop, it
    drains first."""
    async with reported(tmp_path, 2, 2) as fleet:
        async with constant_load(fleet.stack) as load:
            await pause_agent(fleet, load)
            await stop_agent(fleet, load)
        await until_idle(fleet)


async def pause_agent(fleet: Reported, load: Load) -> None:
    first, second = fleet.stack.servers
    agent = fleet.agents[first.address]
    signalled(agent, signal.SIGSTOP)
    paused_at = asyncio.get_running_loop().time()
    await fleet.until_health(first, "down")
    await load.grew(10, name(second))
    await asyncio.sleep(paused_at + PAUSE_S - asyncio.get_running_loop().time())
    signalled(agent, signal.SIGCONT)
    await fleet.until_health(first, "ready")
    await load.grew(3, name(first))
    assert agent.is_running


async def stop_agent(fleet: Reported, load: Load) -> None:
    stack = fleet.stack
    held = await stack.hold()
    holder = next(s for s in stack.servers if name(s) == held.endpoint)
    other = next(s for s in stack.servers if s is not holder)
    agent = fleet.agents[holder.address]
    signalled(agent, signal.SIGTERM)
    await stack.until(lambda status: status["endpoints"][holder.address]["is_removed"])
    await load.grew(10, name(other))
    assert agent.is_running, "a request still runs there"
    assert await held.next_chunk()
    await held.leave()
    assert await agent.wait() == 0
    await stack.until(lambda status: holder.address not in status["endpoints"])
    await fleet.attach(holder)
    await load.grew(3, name(holder))


async def test_a_picker_that_pauses_or_restarts_finds_all_its_agents_again(
    llama: None, tmp_path: Path
) -> None:
    """Its own absence is no silence of theirs; requests of that time are not its business."""
    async with reported(tmp_path, 2, 2) as fleet:
        stack, picker = fleet.stack, fleet.stack.picker
        assert picker is not None
        signalled(picker, signal.SIGSTOP)
        await asyncio.sleep(5.0)
        signalled(picker, signal.SIGCONT)
        await all_are_back(fleet)
        await stack.kill(picker)
        await stack.restart_picker()
        for server in stack.servers:
            await fleet.until_health(server, "ready")
        await all_are_back(fleet)


async def all_are_back(fleet: Reported) -> None:
    """And no request fails."""
    async with constant_load(fleet.stack) as load:
        for server in fleet.stack.servers:
            await load.grew(3, name(server))
    for server in fleet.stack.servers:
        await fleet.until_health(server, "ready")


async def test_a_server_that_others_name_too_outlives_its_agent(
    llama: None, tmp_path: Path
) -> None:
    """The picker looks there itself as soon as the agent is silent."""
    async with Stack.running(tmp_path, slots=(2,)) as stack:
        (server,) = stack.servers
        fleet = Reported(stack)
        agent = await fleet.attach(server)
        async with constant_load(stack, clients=2) as load:
            await load.grew(5)
            await asyncio.sleep(2.0)  # for the agent to come; either way nothing may fail
            signalled(agent, signal.SIGKILL)
            await asyncio.sleep(4.0)  # longer than agents.ttl_s
            await load.grew(5)

        def is_seen(status: dict[str, Any]) -> bool:
            snapshot = status["endpoints"][server.address]
            return bool(snapshot["health"] == "ready" and snapshot["observed_age_s"] < 4.0)

        await stack.until(is_seen)


async def until_idle(fleet: Reported) -> None:
    """The ledger has nothing left: every lease was released once, and no stranger was made up."""
    await fleet.stack.until(
        lambda status: all(
            (one["slots"]["leased"], one["slots"]["foreign"]) == (0, 0)
            for one in status["endpoints"].values()
        )
    )
