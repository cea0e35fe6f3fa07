"""Claims about scraper/discovery/dns_sockets.py, on the event loop that runs it."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress

import uvloop

from scraper.discovery.resolver import Resolver
from tests.fakes.dns_server import FakeDnsServer

MOMENTS = 12
"""Turns of the loop; a query has sent its question by then."""


def sockets() -> int:
    """How many this process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return found


def test_a_cancelled_query_leaves_no_socket() -> None:
    """Whenever it is cancelled; so the loop closes."""

    async def cancel_all() -> tuple[int, int]:
        async with FakeDnsServer() as server:
            server.is_mute = True
            resolver = Resolver([server.address])
            before = sockets()
            for moment in range(MOMENTS):
                query = asyncio.create_task(resolver.hosts("llama.test."))
                for _ in range(moment):
                    await asyncio.sleep(0)
                query.cancel()
                await asyncio.gather(query, return_exceptions=True)
                assert query.cancelled()
            for _ in range(3):
                await asyncio.sleep(0)  # closed in one turn of the loop
            return before, sockets()

    loop = uvloop.new_event_loop()
    gc.collect()
    gc.disable()  # which would close what nobody refers to
    try:
        before, after = loop.run_until_complete(cancel_all())
    finally:
        gc.enable()
    assert after == before
    loop.close()  # with a socket left it would never return


async def test_a_query_is_answered() -> None:
    async with FakeDnsServer() as server:
        server.records["llama.test", "A"] = ["10.0.0.1"]
        ipv4, _ = await Resolver([server.address]).hosts("llama.test.")
        assert "10.0.0.1" in str(ipv4)
