"""Pools over real Envoy: the ways in which a request is for one, and that nothing crosses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extproc.demo.port import free_ports
from tests.e2e.pooled_load import PooledLoad
from tests.e2e.stack import CHAT, Stack, chat, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TEAM = {"x-team": "batch"}
ROUTED = {"x-route": "routed"}
MODELS = "/v1/models"
COMPLETE = {"core": 1, "front": 2, "spare": 1}
NONE_WAITS = {"x-coxswain-queue-timeout-ms": "0"}


class Pools(Stack):
    """Two servers of one model, one for each pool, and a third one that is in none at first."""

    pool_port = chat_port = 0

    async def start_picker(self, settings: dict[str, Any]) -> None:
        self.pool_port, self.chat_port = free_ports(2)
        self.pools: dict[str, Any] = {
            "chat": {"default": True, "hosts": ["chat.test"]},
            "batch": {
                "hosts": ["batch.test"],
                "header": {"name": "x-team", "value": "batch"},
                "metadata": {"value": "batch"},
                "port": self.pool_port,
                "models": {"night": "other"},
            },
        }
        if settings.get("fronts"):
            self.pools["chat"]["port"] = self.chat_port
        self.places = {"chat": [0], "batch": [1]}
        whole = {"routing": {"model_match": "strict"}, **settings}
        await super().start_picker({**whole, "pools": self.pools, "endpoints": self.endpoints()})

    def endpoints(self) -> list[dict[str, Any]]:
        return [
            {"address": self.servers[number].address, "name": f"{pool}-{number}", "in_pool": pool}
            for pool, numbers in self.places.items()
            for number in numbers
        ]

    async def reload(self) -> None:
        """Write the pools and their endpoints as they are now, and let the picker read them."""
        settings = yaml.safe_load(self.config.read_text())
        settings |= {"pools": self.pools, "endpoints": self.endpoints()}
        self.config.write_text(yaml.safe_dump(settings))
        run = await asyncio.create_subprocess_exec(
            *("coxswain", "config", "reload", "--picker", f"127.0.0.1:{self.admin_port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await run.communicate()
        assert run.returncode == 0, output.decode()

    async def envoy_for(self, pool: str) -> str:
        """The URL of an Envoy that asks at the port of this pool, when it serves."""
        port = {"chat": self.chat_port, "batch": self.pool_port}[pool]
        ours = f"port_value: {self.grpc_port}"
        url = await self.start_another_envoy(
            alter=lambda text: text.replace(ours, f"port_value: {port}")
        )

        async def is_served() -> bool:
            try:
                return (await self.client.get(f"{url}{MODELS}")).status_code == 200
            except httpx.TransportError:
                return False

        await until(is_served)
        return url

    async def until_complete(self) -> dict[str, list[int]]:
        """Wait for a core, a warm spare and both fronts; returns the processes of each role."""
        found: dict[str, list[int]] = {}

        def is_complete(status: dict[str, Any]) -> bool:
            found.clear()
            for member in status["processes"]["members"]:
                found.setdefault(member["role"], []).append(member["pid"])
            return {role: len(pids) for role, pids in found.items()} == COMPLETE

        await self.until(is_complete)
        return found

    async def served_by(self, url: str = "", **headers: str) -> str:
        """Which server answers a request with these headers, or why none does."""
        answer = await self.client.post(
            url or self.url(CHAT),
            json=chat(1),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        return answer.headers.get("x-coxswain-reason") or answer.headers["x-coxswain-endpoint"]


def pools_of(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {pool["name"]: pool for pool in status["pools"]}


def routed(text: str) -> str:
    """Envoy's configuration with a route of its own for some requests, whose metadata names their
    pool."""
    whole = yaml.safe_load(text)

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            for route in node.get("routes", []) if isinstance(node.get("routes"), list) else []:
                if route.get("name") == "llama":
                    copy = yaml.safe_load(yaml.safe_dump(route))
                    copy["name"] = "routed"
                    copy["match"].setdefault("headers", []).append(
                        {"name": "x-route", "string_match": {"exact": "routed"}}
                    )
                    metadata = copy.setdefault("metadata", {}).setdefault("filter_metadata", {})
                    metadata["coxswain.pool"] = {"name": "batch"}
                    node["routes"].insert(node["routes"].index(route), copy)
                    break
            for each in list(node.values()):
                visit(each)
        elif isinstance(node, list):
            for each in node:
                visit(each)

    visit(whole)
    assert "x-route" in yaml.safe_dump(whole)
    return yaml.safe_dump(whole)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Pools]:
    async with Pools.running(tmp_path, slots=(1, 1), alter=routed) as found:
        yield found


async def test_each_way_to_a_pool(stack: Pools) -> None:
    """The authority, a header, the route's metadata and the port choose the pool; what none claims
    is for the default."""
    assert await stack.served_by() == "chat-0"
    assert await stack.served_by(host="chat.test") == "chat-0"
    assert await stack.served_by(host="batch.test") == "batch-1"
    assert await stack.served_by(host="BATCH.test:8080") == "batch-1"
    assert await stack.served_by(x_team="batch") == "batch-1"
    assert await stack.served_by(x_team="batch", host="chat.test") == "batch-1"
    assert await stack.served_by(x_team="else", host="chat.test") == "chat-0"
    assert await stack.served_by(x_route="routed", host="chat.test") == "batch-1"
    other = await stack.start_another_envoy(
        alter=lambda text: text.replace(
            f"port_value: {stack.grpc_port}", f"port_value: {stack.pool_port}"
        )
    )

    async def is_served() -> bool:
        try:
            return await stack.served_by(f"{other}{CHAT}", host="chat.test") == "batch-1"
        except (httpx.TransportError, KeyError):
            return False

    await until(is_served)


async def test_nothing_crosses(stack: Pools) -> None:
    """One pool is full, and its requests wait beside an idle server of the same model: nobody waits
    in the other, and none of its requests moves there."""
    await stack.hold(headers=TEAM)
    waiting = [asyncio.create_task(stack.ask(headers=TEAM)) for _ in range(3)]
    await stack.until_waiting(3)
    for _ in range(3):
        answer = await stack.ask(headers=NONE_WAITS)
        assert answer.status_code == 200
        assert answer.headers["x-coxswain-endpoint"] == "chat-0"
    refused = await stack.ask(headers={**TEAM, **NONE_WAITS})
    assert refused.status_code == 504
    assert refused.headers["x-coxswain-reason"] == "queue-timeout"
    status = await stack.status()
    assert status["queue"]["queued"] == 3
    pools = pools_of(status)
    assert pools["batch"]["queued"] == 3 and pools["chat"]["queued"] == 0
    await stack.leave_all()
    for done in await asyncio.gather(*waiting):
        assert done.headers["x-coxswain-endpoint"] == "batch-1"

    server = stack.servers[1]
    await stack.kill(server.child)
    await stack.until(lambda now: now["endpoints"][server.address]["health"] == "down")
    lost = await stack.ask(headers={**TEAM, **NONE_WAITS})
    assert (lost.status_code, lost.headers["x-coxswain-reason"]) == (503, "no-endpoint")
    passing = await stack.client.post(stack.url("/tokenize"), json={"content": "a"}, headers=TEAM)
    assert passing.status_code == 503, "what takes no slot crosses neither"
    health = await stack.client.get(stack.url("/health"), headers=TEAM)
    assert health.status_code == 503
    assert (await stack.client.get(stack.url("/health"))).status_code == 200
    await stack.kill(stack.picker)
    answers = [await stack.ask(), await stack.ask(headers=TEAM)]
    assert all(answer.status_code >= 500 for answer in answers), "Envoy chooses no server itself"


async def test_names_of_models_are_those_of_the_pool(tmp_path: Path) -> None:
    """Strict matching, aliases and the list of models know the models of the pool alone."""
    alias = ("--alias", "other")
    async with Pools.running(tmp_path, slots=(1, 1), flags=((), alias)) as stack:

        async def models(headers: dict[str, str]) -> set[str]:
            listed = (await stack.client.get(stack.url(MODELS), headers=headers)).json()["data"]
            return {name for one in listed for name in (one["id"], *one["aliases"])}

        async def asked(model: str, headers: dict[str, str]) -> tuple[int, str]:
            answer = await stack.client.post(
                stack.url(CHAT), json={**chat(1), "model": model}, headers=headers
            )
            found = answer.headers
            return answer.status_code, found.get("x-coxswain-endpoint") or found[
                "x-coxswain-reason"
            ]

        assert {"other", "night"} <= await models(TEAM)
        assert {"other", "night"}.isdisjoint(await models({}))
        assert await asked("other", TEAM) == (200, "batch-1")
        assert await asked("night", TEAM) == (200, "batch-1")
        assert await asked("other", {}) == (404, "model-not-found")
        assert await asked("night", {}) == (404, "model-not-found")
        one = await stack.client.get(stack.url(f"{MODELS}/other"))
        assert one.status_code == 404
        one = await stack.client.get(stack.url(f"{MODELS}/other"), headers=TEAM)
        assert one.status_code == 200


async def test_a_model_is_scaled_from_zero_in_its_pool(tmp_path: Path) -> None:
    """Requests for it wait for its first server, and in another pool there is no such model."""
    settings: dict[str, Any] = {"scale": {"models": {"batch/later": {}}}}
    async with Pools.running(tmp_path, slots=(1, 1), settings=settings) as stack:
        body = {**chat(1), "model": "later"}
        call = asyncio.create_task(stack.client.post(stack.url(CHAT), json=body, headers=TEAM))
        await stack.until_waiting(1)
        answer = await stack.client.post(stack.url(CHAT), json=body)
        assert answer.headers["x-coxswain-reason"] == "model-not-found"
        await stack.add_server(1, flags=("--alias", "later"))
        stack.places["batch"].append(2)
        await stack.reload()
        answer = await call
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-coxswain-endpoint"] == "batch-2"


async def test_a_reload_adds_and_removes_pools(stack: Pools) -> None:
    """A pool comes with its server and its port; one that goes lets its requests end, and rejects
    those that wait. Without a default, what is for no pool is rejected."""
    await stack.add_server(1)
    port = free_ports(1)[0]
    stack.pools["night"] = {"header": {"name": "x-team", "value": "night"}, "port": port}
    stack.places["night"] = [2]
    await stack.reload()

    async def night_serves() -> bool:
        return await stack.served_by(x_team="night") == "night-2"

    await until(night_serves)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()

    held = await stack.hold(headers=TEAM)
    waiting = asyncio.create_task(stack.ask(headers=TEAM))
    await stack.until_waiting(1)
    del stack.pools["batch"], stack.places["batch"]
    stack.pools["chat"] = {"hosts": ["chat.test"]}
    await stack.reload()
    rejected = await waiting
    assert (rejected.status_code, rejected.headers["x-coxswain-reason"]) == (503, "no-endpoint")
    assert await held.next_chunk(), "what runs goes on"
    assert await stack.served_by(x_team="batch") == "no-pool"
    assert await stack.served_by(host="chat.test") == "chat-0"
    none = await stack.ask()
    assert none.status_code == 404 and none.json()["error"]["code"] == "no-pool"
    await stack.leave_all()
    address = stack.servers[1].address
    await stack.until(lambda now: address not in now["endpoints"])
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", stack.pool_port)


async def test_a_core_that_takes_over_knows_the_pools(tmp_path: Path) -> None:
    """With fronts: what runs and what waits is in the same pool at the next core, by a header as
    by the metadata of a route."""
    async with Pools.running(tmp_path, slots=(1, 1), alter=routed, settings={"fronts": 2}) as stack:
        [core] = (await stack.until_complete())["core"]
        await stack.hold(headers=TEAM)
        waiting = [asyncio.create_task(stack.ask(headers=how)) for how in (TEAM, ROUTED)]
        await stack.until_waiting(2)
        os.kill(core, signal.SIGKILL)
        await stack.until(
            lambda now: (
                now["processes"]["takeovers"] == 1
                and pools_of(now)["batch"]["queued"] == 2
                and pools_of(now)["batch"]["running"] == 1
            )
        )
        assert await stack.served_by() == "chat-0"
        await stack.leave_all()
        for done in await asyncio.gather(*waiting):
            assert (done.status_code, done.headers["x-coxswain-endpoint"]) == (200, "batch-1")


async def test_ports_of_pools_hold_while_processes_die(tmp_path: Path) -> None:
    """With fronts: under load at the ports of two pools a front is killed, then the core. Whatever
    runs, waits or comes meanwhile is served in the pool of its port, though all else about it says
    the other one."""
    others = {"chat": {**TEAM, "host": "batch.test"}, "batch": {"host": "chat.test"}}
    own = {"chat": "of-chat", "batch": "of-batch"}  # as each server names its model
    flags = tuple(("--alias", name) for name in own.values())
    running = Pools.running(tmp_path, slots=(1, 1), flags=flags, settings={"fronts": 2})
    async with running as stack:
        urls = {pool: f"{await stack.envoy_for(pool)}{CHAT}" for pool in own}

        def served_by(answer: httpx.Response) -> str:
            return str(answer.json().get("model", ""))

        def queues(status: dict[str, Any]) -> bool:
            return all(pools_of(status)[pool]["queued"] for pool in own)

        load = PooledLoad(stack.client, urls, served_by, others)
        pids = await stack.until_complete()
        async with load.running():
            await load.until_served()
            for front in pids["front"]:
                await stack.until(queues)
                os.kill(front, signal.SIGKILL)
                await load.until_served()
                await stack.until_complete()
            await stack.until(queues)
            os.kill(pids["core"][0], signal.SIGKILL)
            await stack.until(lambda now: now["processes"]["takeovers"] == 1 and queues(now))
            await load.until_served()
    for pool, found in load.answers.items():
        assert set(found) == {(200, own[pool])}
