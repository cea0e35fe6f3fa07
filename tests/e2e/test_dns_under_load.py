"""Names that gain and lose addresses under constant load, and not one request fails: over real
Envoy, real llama-servers and a name server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extproc.demo.port import free_port
from tests.e2e.constant_load import constant_load
from tests.e2e.stack import Server, Stack
from tests.fakes.dns_server import FakeDnsServer

pytestmark = pytest.mark.e2e


def following(names: FakeDnsServer, *urls: str) -> dict[str, Any]:
    """The settings of a picker that knows its servers by these names alone."""
    return {
        "endpoints": [],
        "scraper": {"slow_interval_s": 0.5},
        "discovery": {
            "dns": list(urls),
            "nameservers": [str(names.address)],
            "dns_min_s": 0.1,
            "dns_max_s": 0.2,
        },
    }


async def until_members(stack: Stack, *servers: Server) -> None:
    """Wait until exactly these are in the fleet and ready, and nothing runs on others."""
    wanted = {server.address for server in servers}
    await stack.until(
        lambda status: (
            set(status["endpoints"]) == wanted
            and all(each["health"] == "ready" for each in status["endpoints"].values())
        )
    )


async def test_a_name_that_scales(llama: None, tmp_path: Path) -> None:
    """As `docker compose up --scale llama=3` does: one name, one port, more and fewer addresses.

    Its name server fails and forgets for a while in between, which changes nothing.
    """
    port = free_port()
    async with FakeDnsServer() as names:
        names.ttl_s = 600
        settings = following(names, f"dns://llama.test.:{port}")
        names.records["llama.test", "A"] = []
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            first, second, third = [
                await stack.add_server(2, port=port, host=f"127.0.0.{number}")
                for number in (1, 2, 3)
            ]

            def resolves_to(*servers: Server) -> None:
                names.records["llama.test", "A"] = [server.host for server in servers]

            resolves_to(first)
            await until_members(stack, first)
            async with constant_load(stack) as load:
                await load.grew(4, first.address)
                resolves_to(first, second, third)
                await load.grew(3, second.address)
                await load.grew(3, third.address)
                held = await stack.hold()
                names.broken.add("llama.test")
                await names.was_asked("llama.test", len(names.queries) + 6)
                await load.grew(5)
                await until_members(stack, first, second, third)
                names.broken.clear()
                (holder,) = [each for each in stack.servers if each.address == held.endpoint]
                rest = [each for each in stack.servers if each is not holder]
                resolves_to(*rest)
                await stack.until(lambda status: status["endpoints"][holder.address]["is_removed"])
                before = load.served[holder.address]
                await load.grew(10)
                assert load.served[holder.address] - before <= 4, "only what was on its way"
                assert await held.next_chunk(), "a removed endpoint ends what runs there"
                await held.leave()
                await until_members(stack, *rest)
                resolves_to(holder)
                await load.grew(5, holder.address)
                await until_members(stack, holder)


async def test_a_service_whose_records_change(llama: None, tmp_path: Path) -> None:
    """SRV records tell the ports; a server that moves to another port is another endpoint."""
    async with FakeDnsServer() as names:
        settings = following(names, "srv://_llama._tcp.test.")
        names.records["_llama._tcp.test", "SRV"] = []
        names.records["gpu.test", "A"] = ["127.0.0.1"]
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            first, second, third = [await stack.add_server(2) for _ in range(3)]

            def resolves_to(*servers: Server) -> None:
                names.records["_llama._tcp.test", "SRV"] = [
                    f"0 0 {server.port} gpu.test." for server in servers
                ]

            resolves_to(first)
            await until_members(stack, first)
            async with constant_load(stack) as load:
                for members in ((first, second), (second, third), (third,), (third, first)):
                    resolves_to(*members)
                    await until_members(stack, *members)
                    for server in members:
                        await load.grew(3, server.address)
