"""Endpoints come and go under constant load, and not one request fails: over real Envoy and
real llama-servers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.constant_load import constant_load
from tests.e2e.stack import Server, Stack

pytestmark = pytest.mark.e2e

QUICK: dict[str, Any] = {"scraper": {"slow_interval_s": 0.5}}


def write(file: Path, *servers: Server) -> None:
    """Replace the endpoints file in one go, as editors and Kubernetes do."""
    fresh = file.with_suffix(".new")
    fresh.write_text(yaml.safe_dump({"endpoints": [server.address for server in servers]}))
    fresh.replace(file)


async def until_members(stack: Stack, *servers: Server) -> None:
    """Wait until exactly these are in the fleet and ready, as the picker sees it."""
    wanted = {server.address for server in servers}
    await stack.until(
        lambda status: (
            {a for a, e in status["endpoints"].items() if not e["is_removed"]} == wanted
            and all(status["endpoints"][a]["health"] == "ready" for a in wanted)
        )
    )


async def test_the_endpoints_file_changes_under_load(llama: None, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    settings = {**QUICK, "endpoints": [], "discovery": {"file": str(file)}}
    file.write_text("endpoints: []")
    async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
        first, second, third = [await stack.add_server(2) for _ in range(3)]
        write(file, first, second)
        await until_members(stack, first, second)
        async with constant_load(stack) as load:
            await load.grew(5)
            held = await stack.hold()
            write(file, first, second, third)
            await load.grew(3, third.address)
            holder = first if held.endpoint == first.address else second
            other = second if holder is first else first
            write(file, other, third)
            await stack.until(lambda status: status["endpoints"][holder.address]["is_removed"])
            before = load.served[holder.address]
            file.write_text("endpoints: [10.0.0.1\n")
            await load.grew(10)
            await until_members(stack, other, third)
            assert load.served[holder.address] - before <= 4, "only what was on its way"
            assert await held.next_chunk(), "a removed endpoint ends what runs there"
            await held.leave()
            await stack.until(lambda status: holder.address not in status["endpoints"])
            write(file, first, second, third)
            await until_members(stack, first, second, third)
            await load.grew(3, holder.address)


async def test_the_settings_file_changes_under_load(llama: None, tmp_path: Path) -> None:
    async with Stack.running(tmp_path, slots=(2, 2), settings=QUICK) as stack:
        first, second = stack.servers
        third = await stack.add_server(2)
        config = yaml.safe_load(stack.config.read_text())
        assert stack.picker is not None
        async with constant_load(stack) as load:
            for members in ((first, second, third), (second, third), (first,), (first, third)):
                config["endpoints"] = [server.address for server in members]
                config["queue"] = {"timeout_s": 30 + len(members)}
                stack.config.write_text(yaml.safe_dump(config))
                os.kill(stack.picker.pid, signal.SIGHUP)
                await until_members(stack, *members)
                for server in members:
                    await load.grew(2, server.address)
            stack.config.write_text("endpoints: nonsense")
            os.kill(stack.picker.pid, signal.SIGHUP)
            await load.grew(10)
            await until_members(stack, first, third)


async def test_a_picker_that_restarts_takes_no_server_from_envoy(
    llama: None, tmp_path: Path
) -> None:
    """Its file speaks later than its list: Envoy hears of nothing before both have."""
    file = tmp_path / "fleet.yaml"
    settings = {**QUICK, "discovery": {"file": str(file)}}
    file.write_text("endpoints: []")
    async with Stack.running(tmp_path, slots=(2,), settings=settings) as stack:
        (listed,) = stack.servers
        filed = await stack.add_server(2)
        write(file, filed)
        await until_members(stack, listed, filed)
        assert stack.picker is not None
        file.rename(tmp_path / "away")
        await stack.kill(stack.picker)
        await stack.restart_picker()
        await stack.until(lambda status: status["endpoints"][listed.address]["health"] == "ready")
        known = await stack.known_to_envoy()
        assert filed.port in known, "Envoy keeps it while the file has not spoken"
        (tmp_path / "away").rename(file)
        await until_members(stack, listed, filed)
        assert filed.port in await stack.known_to_envoy()
