"""Two fleets, each with its Envoy and picker, as two endpoints of a parent's Envoy and picker."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.core.address import Address
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator
from extproc.runners.target import EndpointTarget
from scraper.agent import Agent, AgentOptions
from scraper.agent.advertise import Advertise
from scraper.agent.fleet_watch import FleetWatch
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.one_process import Running, running, server_side
from tests.e2e.stack import CHAT, chat
from tests.fakes.authority import Authority
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until
from tests.fakes.slow_link import slow_link
from tests.long_run import IS_LONG_RUN

pytestmark = [pytest.mark.e2e]

log = logging.getLogger("coxswain.tests")

SLOTS = 2
REQUESTS = 200 if IS_LONG_RUN else 40
"""From the parent's clients; half as many come to the first fleet itself."""
FAR = REQUESTS // 2


class Region:
    """One fleet of one server, and the agent that reports it to a parent."""

    def __init__(self, stack: Running, simulator: Simulator) -> None:
        self.stack = stack
        self.simulator = simulator
        self.envoy = Address.parse(stack.settings.envoy.listen)

    @asynccontextmanager
    async def reported_to(
        self, admin: int, envoy: Address | None = None, ahead: int = 0
    ) -> AsyncIterator[None]:
        """To the parent with this admin port, which reaches this fleet's Envoy at `envoy`."""
        options = AgentOptions(
            picker=f"127.0.0.1:{admin}",
            advertise=Advertise.parse(str(envoy or self.envoy), 0),
        )
        agent = Agent(
            EndpointTarget(address=self.envoy),
            options,
            lambda: grpc.aio.insecure_channel(options.picker),
            source=lambda sink: FleetWatch("fleet", self._connect, sink, ahead=ahead),
        )
        work = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _connect(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.stack.service.admin_port}")


@asynccontextmanager
async def region(
    folder: Path, service_s: float = 0.1, keys: Path | None = None
) -> AsyncIterator[Region]:
    simulator = Simulator(SimulatorOptions(slots=SLOTS, service_time_s=service_s, alias="tiny"))
    port = await simulator.start()
    try:
        values: dict[str, Any] = {"endpoints": [f"127.0.0.1:{port}"], "queue": {"timeout_s": 50}}
        if keys is not None:
            values["clients"] = {"keys_file": str(keys)}
        async with running(folder, {**values, "envoy": {"health": True}}) as stack:
            yield Region(stack, simulator)
    finally:
        await simulator.close()


def is_known(parent: Running, envoy: Address, ahead: int = 0) -> bool:
    """Whether the parent would send requests there, to all of its slots."""
    endpoint = parent.service.dispatcher.fleet.get(envoy)
    if endpoint is None or not endpoint.is_pickable:
        return False
    return parent.service.dispatcher.view.slots_at(envoy).free_slots == SLOTS + ahead


async def ask(stack: Running, name: str = "own", after_s: float = 0.0) -> httpx.Response:
    await asyncio.sleep(after_s)
    return await stack.client.post(CHAT, json=chat(1), headers={"x-request-id": name})


async def models_of(stack: Running) -> list[str]:
    """The models that its clients see, as soon as its Envoy listens."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                answer = await stack.client.get("/v1/models")
                return [model["id"] for model in answer.json()["data"]]
            except httpx.TransportError:
                await asyncio.sleep(0.05)


class Watch:
    """What was seen at any moment: the most requests that the parent had in a fleet, and those of
    its requests that were queued there, because the fleet's own clients were faster."""

    def __init__(self, parent: Running, regions: dict[Address, Region]) -> None:
        """`regions` by the addresses of their Envoys for the parent."""
        self.parent, self.regions = parent, regions
        self.leased = self.most_queued = 0
        self.queued: set[str] = set()
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            for envoy, each in self.regions.items():
                there = self.parent.service.dispatcher.view.slots_at(envoy)
                self.leased = max(self.leased, there.leased_slots)
                queue = each.stack.service.dispatcher.queue
                ours = {one.request.id for one in queue if one.request.id.startswith("parents-")}
                self.queued |= ours
                self.most_queued = max(self.most_queued, len(ours))
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """One for each Envoy's file."""
    found = [tmp_path / name for name in ("first", "second", "parent")]
    for folder in found:
        folder.mkdir()
    return found


async def test_two_fleets_are_two_endpoints_of_a_parent(folders: list[Path]) -> None:
    """Every request is answered, and the parent never has more requests in a fleet than it has
    slots, while a fleet has clients of its own. A fleet that dies leaves its requests to the other
    one, and a parent that dies leaves a fleet to its own clients."""
    async with AsyncExitStack() as first_stack, AsyncExitStack() as second_stack:
        first = await first_stack.enter_async_context(region(folders[0]))
        second = await second_stack.enter_async_context(region(folders[1]))
        values = {"endpoints": [], "queue": {"timeout_s": 50}}
        async with running(folders[2], values, is_steered=False) as parent:
            await first_stack.enter_async_context(first.reported_to(parent.service.admin_port))
            await second_stack.enter_async_context(second.reported_to(parent.service.admin_port))
            await until(lambda: is_known(parent, first.envoy) and is_known(parent, second.envoy))
            assert await models_of(parent) == ["tiny"]

            watch = Watch(parent, {first.envoy: first, second.envoy: second})
            calls = [ask(parent, f"parents-{number}") for number in range(REQUESTS)]
            calls += [ask(first.stack, "own", n * 0.03) for n in range(REQUESTS // 2)]
            answers = await asyncio.gather(*calls)
            await watch.stop()
            assert [answer.status_code for answer in answers] == [200] * len(calls)
            assert watch.leased == SLOTS
            assert watch.most_queued <= SLOTS
            log.info("%d of %d requests were queued in a fleet", len(watch.queued), REQUESTS)
            served = [answer.headers["x-coxswain-endpoint"] for answer in answers[:REQUESTS]]
            assert {str(first.envoy), str(second.envoy)} >= set(served)
            assert str(second.envoy) in served

            await second_stack.aclose()
            answers = await asyncio.gather(*(ask(parent) for _ in range(8)))
            assert [answer.status_code for answer in answers] == [200] * 8
            assert {answer.headers["x-coxswain-endpoint"] for answer in answers} == {
                str(first.envoy)
            }
        answers = await asyncio.gather(*(ask(first.stack) for _ in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        health = (await first.stack.client.get("/health")).json()
        assert health["slots_idle"] + health["slots_processing"] == SLOTS


@pytest.mark.parametrize("ahead", [0, 3])
async def test_requests_ahead_keep_a_far_fleet_busy(folders: list[Path], ahead: int) -> None:
    """A way of 0.2 s, and requests of 0.2 s: with three of the parent's requests ahead in the
    fleet's queue, never more, a slot has its next request at once. Without any it waits for it."""
    async with (
        region(folders[0], service_s=0.2) as fleet,
        running(folders[2], {"endpoints": [], "queue": {"timeout_s": 50}}, is_steered=False) as up,
        slow_link(up.service.admin_port, 0.2) as admin,
        slow_link(fleet.envoy.port, 0.2) as port,
        fleet.reported_to(admin, envoy := Address.of("127.0.0.1", port), ahead),
    ):
        await until(lambda: is_known(up, envoy, ahead))
        assert await models_of(up) == ["tiny"]
        watch = Watch(up, {envoy: fleet})
        began = time.monotonic()
        answers = await asyncio.gather(*(ask(up, f"parents-{n}") for n in range(FAR)))
        took_s = time.monotonic() - began
        async with asyncio.timeout(60):  # on a busy machine the first may be served before the rest
            while watch.most_queued < ahead:
                answers = await asyncio.gather(*(ask(up, f"parents-again-{n}") for n in range(FAR)))
        await watch.stop()
        assert [answer.status_code for answer in answers] == [200] * FAR
        assert watch.leased == SLOTS + ahead
        assert watch.most_queued == ahead
        log.info("%d requests with %d ahead in %.1f s", FAR, ahead, took_s)


async def test_a_fleet_behind_tls_with_keys(folders: list[Path]) -> None:
    """Its agent, the command, gives the parent's Envoy a key of the fleet and the CA of what ends
    TLS before it: clients of the parent need neither. Killed, the agent is missed after its time;
    started again, requests go there again."""
    folder, _, parents = folders
    authority = Authority(folder)
    keys, key = folder / "keys", folder / "key"
    keys.write_text("web sk-web\nparent sk-of-parent\n", encoding="ascii")
    key.write_text("sk-of-parent", encoding="ascii")
    context = server_side(authority.issue("fleet"))
    values = {"endpoints": [], "queue": {"timeout_s": 50}, "agents": {"ttl_s": 1.0}}
    async with (
        region(folder, keys=keys) as fleet,
        slow_link(fleet.envoy.port, 0.0, tls=context) as port,
        running(parents, values, is_steered=False) as parent,
        ForkedChildren(parents) as children,
    ):
        envoy = Address.of("127.0.0.1", port)
        command = [
            *(sys.executable, "-m", "extproc.cli", "agent"),
            *("--picker", f"127.0.0.1:{parent.service.admin_port}"),
            *("--fleet", f"127.0.0.1:{fleet.stack.service.admin_port}"),
            *("--advertise", f"https://{envoy}", "--server-ca", str(authority.ca)),
            *("--api-key-file", str(key), "--inject-key"),
        ]
        agent = await children.start("agent", command)
        await until(lambda: is_known(parent, envoy))
        assert (await ask(fleet.stack)).status_code == 401
        assert await models_of(parent) == ["tiny"]
        answers = await asyncio.gather(*(ask(parent) for _ in range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8

        agent.kill()
        await agent.wait()
        await until(lambda: not is_known(parent, envoy))
        waiting = asyncio.create_task(ask(parent))
        await until(lambda: len(parent.service.dispatcher.queue) == 1)
        await children.start("agent again", command)
        assert (await waiting).status_code == 200
