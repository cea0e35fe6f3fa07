"""What gateways do that our own Envoy files need not: the rest of the endpoint picker protocol."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_envoys import (
    GATEWAY_MESSAGE_TIMEOUT_S,
    envoy_ai_gateway,
    envoy_gateway,
)
from tests.e2e.one_process import Running, running
from tests.e2e.stack import CHAT, CONTEXT_TOKENS, Stack, chat, until
from tests.fakes import quick_yaml
from tests.fakes.echo_server import echo_server
from tests.fakes.gateways import (
    Agentgateway,
    RefusedError,
    ask_as_nginx,
    channel_to,
    nginx_messages,
    process,
    through_agentgateway,
)

pytestmark = pytest.mark.e2e

RARE_SCRAPES = {"scraper": {"slow_interval_s": 5.0, "stale_after_s": 20.0}}


def without_attributes(config: str) -> str:
    """A gateway that tells who served as the protocol says, and nothing that only Envoy knows."""
    tree = quick_yaml.load(config)

    def strip(node: Any) -> int:
        if isinstance(node, list):
            return sum(map(strip, node))
        if not isinstance(node, dict):
            return 0
        return sum(map(strip, node.values())) + bool(node.pop("response_attributes", None))

    assert strip(tree)
    return quick_yaml.dump(tree)


async def test_who_served_is_learned_from_the_metadata_alone(tmp_path: Path) -> None:
    """The picked server is dead: its fallback answers, is told to the client, and the lease is
    there, so that nobody else is sent to its only slot."""
    async with Stack.running(
        tmp_path,
        slots=(4, 1),
        settings=RARE_SCRAPES,
        kind="simulator",
        mode="gateway",
        alter=without_attributes,
    ) as stack:
        large, small = stack.servers
        await stack.kill(large.child)
        held = await stack.hold()
        assert held.endpoint == small.address
        await stack.until(
            lambda status: (
                status["endpoints"][small.address]["slots"]["leased"] == 1
                and status["endpoints"][large.address]["slots"]["leased"] == 0
            )
        )


async def is_rejected_by_the_picker(stack: Stack) -> bool:
    return "x-coxswain-reason" in (await stack.client.get(stack.url("/props"))).headers


async def test_without_any_endpoint_a_gateway_gets_an_error(tmp_path: Path) -> None:
    """Also about what takes no slot: it may know nobody to go to by itself."""
    async with Stack.running(
        tmp_path, slots=(1,), kind="simulator", mode="gateway", settings=RARE_SCRAPES
    ) as stack:
        (server,) = stack.servers
        await stack.kill(server.child)
        await until(lambda: is_rejected_by_the_picker(stack))
        answer = await stack.client.get(stack.url("/props"))
        assert answer.status_code == 503
        assert answer.headers["x-coxswain-reason"] == "no-endpoint"
        assert answer.json()["error"]["code"] == "no-endpoint"


# Gateways that are no Envoy, each with the settings that docs/envoy.md tells for it


async def test_nginx_gateway_fabric(tmp_path: Path) -> None:
    """Two of its requests never share a slot, though it tells nobody of their ends; a third waits
    and goes where one ended; one that may not wait is rejected."""
    async with (
        Stack.running(tmp_path, slots=(1, 1), kind="simulator", settings=RARE_SCRAPES) as stack,
        channel_to(stack.grpc_port) as channel,
        AsyncExitStack() as exits,
    ):
        endless = chat(CONTEXT_TOKENS - 200, stream=True)
        body = json.dumps(endless).encode()

        async def pick(**headers: str) -> str | None:
            json_headers = {"content-type": "application/json", **headers}
            return await ask_as_nginx(process(channel), nginx_messages(body, json_headers))

        ends = {}
        kept = []  # or the collector would close their connections
        for _ in range(2):
            address = await pick()
            assert address not in ends
            held = await exits.enter_async_context(AsyncExitStack())
            answer = await held.enter_async_context(
                stack.client.stream("POST", f"http://{address}{CHAT}", json=endless)
            )
            chunks = answer.aiter_raw()
            await anext(chunks)
            kept.append(chunks)
            ends[address] = held.aclose
        with pytest.raises(RefusedError) as rejected:
            await pick(**{"x-coxswain-queue-timeout-ms": "0"})
        assert rejected.value.status == 504
        third = asyncio.create_task(pick())
        await stack.until_waiting(1)
        freed, end = ends.popitem()
        await end()
        assert await third == freed


@pytest.mark.parametrize("tells_config", [True, False])
async def test_agentgateway(tmp_path: Path, tells_config: bool) -> None:
    """Ten at a time through both directions of its bodies: each is answered whole by whom the
    picker named, and nothing is left of them."""
    async with (
        Stack.running(
            tmp_path, slots=(1, 2), kind="simulator", settings={"picker": {"fallbacks": 0}}
        ) as stack,
        channel_to(stack.grpc_port) as channel,
    ):
        body = json.dumps({**chat(5), "padding": "x" * 100_000}).encode()

        async def ask() -> None:
            gateway = Agentgateway(channel, tells_config)
            served, answer = await through_agentgateway(gateway, stack.client, CHAT, body)
            assert gateway.sent == body
            assert served in {server.address for server in stack.servers}
            assert json.loads(answer)["usage"]["completion_tokens"] == 5

        await asyncio.gather(*(ask() for _ in range(10)))
        await stack.until(
            lambda status: all(
                endpoint["slots"]["leased"] == 0 for endpoint in status["endpoints"].values()
            )
        )


async def is_steered(stack: Running) -> bool:
    try:
        return "x-coxswain-queue-ms" in (await stack.client.get("/props")).headers
    except httpx.TransportError:
        return False


async def test_envoy_ai_gateway(tmp_path: Path) -> None:
    """It reads one address, tells nobody who served, and grants no `override_message_timeout`; a
    request with a body may wait for longer than its message timeout all the same."""
    async with AsyncExitStack() as exits:
        servers = [
            await exits.enter_async_context(echo_server(f"127.0.1.{number}", slots=1))
            for number in (1, 2)
        ]
        values = {
            "endpoints": [server.address for server in servers],
            "picker": {"fallbacks": 0},
        }
        stack = await exits.enter_async_context(
            running(tmp_path, values, is_steered=False, printed=envoy_ai_gateway())
        )
        await until(lambda: is_steered(stack))
        for _ in servers:
            held = stack.client.stream("POST", "/v1/completions?as=/stream", json={"prompt": "a"})
            answer = await exits.enter_async_context(held)
            assert answer.status_code == 200
        waiting = asyncio.create_task(stack.client.post("/v1/completions", json={"prompt": "b"}))

        async def has_outlasted_the_timeout() -> bool:
            patience_s = GATEWAY_MESSAGE_TIMEOUT_S + 1
            line = stack.service.dispatcher.queue
            return any(time.monotonic() - ticket.entered_at > patience_s for ticket in line)

        await until(has_outlasted_the_timeout)
        assert not waiting.done()
        servers[0].stop_streaming.set()
        answer = await waiting
        assert (answer.status_code, answer.headers["x-echo"]) == (200, servers[0].address)
        assert "x-coxswain-endpoint" not in answer.headers
        servers[1].stop_streaming.set()


async def test_envoy_ai_gateway_fails_closed(tmp_path: Path) -> None:
    """Without the picker it serves nothing, whatever the pool's `failureMode` says."""
    async with AsyncExitStack() as exits:
        server = await exits.enter_async_context(echo_server("127.0.1.1", slots=1))
        values = {"endpoints": [server.address], "picker": {"fallbacks": 0}}
        stack = await exits.enter_async_context(
            running(tmp_path, values, is_steered=False, printed=envoy_ai_gateway())
        )
        await until(lambda: is_steered(stack))
        await stack.service.stop()

        async def is_closed() -> bool:
            answers = [
                await stack.client.post("/v1/completions", json={"prompt": "a"}),
                await stack.client.get("/v1/models"),
            ]
            return all(answer.status_code >= 500 for answer in answers)

        await until(is_closed)


async def test_envoy_gateway(tmp_path: Path) -> None:
    """It asks for bodies as the picker says, waits for it, tries the next of its list, tells who
    served, and serves without it."""
    async with AsyncExitStack() as exits:
        servers = [
            await exits.enter_async_context(echo_server(f"127.0.1.{number}", slots=1))
            for number in (1, 2)
        ]
        addresses = [server.address for server in servers]
        stack = await exits.enter_async_context(
            running(
                tmp_path,
                {"endpoints": addresses, **RARE_SCRAPES},
                is_steered=False,
                printed=envoy_gateway(addresses),
            )
        )
        await until(lambda: is_steered(stack))
        served = set()
        for _ in servers:
            held = stack.client.stream("POST", "/v1/completions?as=/stream", json={"prompt": "a"})
            answer = await exits.enter_async_context(held)
            served.add(answer.headers["x-coxswain-endpoint"])
        assert served == set(addresses)
        body = {"prompt": "b" * 100_000}
        waiting = asyncio.create_task(stack.client.post("/v1/completions", json=body))
        line = stack.service.dispatcher.queue

        async def is_queued() -> bool:
            return len(list(line)) == 1

        await until(is_queued)
        servers[0].stop_streaming.set()
        answer = await waiting
        assert (answer.status_code, answer.headers["x-echo"]) == (200, servers[0].address)
        assert answer.headers["x-coxswain-endpoint"] == servers[0].address
        assert json.loads(servers[0].reached[-1].body) == body
        servers[1].stop_streaming.set()
        await stack.service.stop()

        async def is_open() -> bool:
            answer = await stack.client.post("/v1/completions", json={"prompt": "c"})
            return answer.status_code == 200 and "x-coxswain-endpoint" not in answer.headers

        await until(is_open)
