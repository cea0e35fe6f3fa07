"""Processes of `fronts` die under load, behind the real Envoy: nobody is refused, sent to a server
without a free slot, or overtaken. The servers and the clients account for each request."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.port import free_ports
from tests.e2e.fronted import Fronted, fronted, is_gone
from tests.e2e.stack import until

pytestmark = [pytest.mark.e2e]

OFFERED = 1.2
"""Of the fleet's capacity, so that requests are queued when the fault comes."""
LENGTH_S = 6.0
HEADERS_ONLY = {"routing": {"read_body": "never"}}
"""Nothing is answered while a request is queued, so Envoy opens its stream again."""

REASONS = {signal.SIGKILL: "ended", signal.SIGTERM: "left", signal.SIGSTOP: "hung"}


async def account_of(stack: Fronted, role: str, number: signal.Signals, seed: int = 1) -> None:
    await stack.run(offered=OFFERED, length_s=LENGTH_S, seed=seed, role=role, number=number)


def assert_exact(stack: Fronted) -> None:
    account = stack.account
    text = account.describe(stack.broken_at)
    assert not account.unanswered(), (text, account.unanswered()[:3])
    assert not account.over(), text
    assert not account.overtaken(), text


async def until_calm(stack: Fronted) -> None:
    """No lease, no queued request and no exchange is left."""

    async def is_calm() -> bool:
        try:
            status = await stack.stack.status()
        except (httpx.TransportError, ValueError):
            return False
        slots: dict[str, Any] = status["slots"]
        return not (status["exchanges"] or slots["leased"] or slots["foreign"])

    await until(is_calm)


@pytest.mark.parametrize("mode", ["discovery", "gateway"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_core_that_is_lost_costs_nobody_anything(
    tmp_path: Path, mode: str, number: signal.Signals
) -> None:
    async with fronted(tmp_path, mode=mode) as stack:
        await account_of(stack, "core", number)
        assert_exact(stack)
        assert not stack.account.blind(stack.broken_at), stack.account.describe(stack.broken_at)
        await stack.until_complete(2)
        processes = await stack.processes()
        assert processes["takeovers"] >= 1  # a busy machine may look like a core that hangs
        assert processes["takeovers_by_reason"][REASONS[number]] >= 1
        assert processes["last_takeover"]["fronts"] == 2
        await until_calm(stack)
        await stack.stack.check_audit()


async def test_cores_that_are_lost_one_after_the_other_cost_nobody_anything(
    tmp_path: Path,
) -> None:
    async with fronted(tmp_path) as stack:
        for seed in (1, 2, 3):
            await account_of(stack, "core", signal.SIGKILL, seed)
            assert_exact(stack)
            stack.account.traces.clear()
            await stack.until_complete(2)
        assert (await stack.processes())["takeovers"] >= 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_spare_that_is_lost_is_replaced(tmp_path: Path, number: signal.Signals) -> None:
    async with fronted(tmp_path) as stack:
        await account_of(stack, "spare", number)
        assert_exact(stack)
        await stack.until_complete(2)


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        (HEADERS_ONLY, signal.SIGKILL),
        (HEADERS_ONLY, signal.SIGTERM),
        ({}, signal.SIGTERM),
    ],
)
async def test_a_front_that_is_lost_costs_nobody_anything(
    tmp_path: Path, settings: dict[str, Any], number: signal.Signals
) -> None:
    """Its queued requests keep their places: Envoy opens their streams again at another front."""
    async with fronted(tmp_path, settings=settings) as stack:
        await account_of(stack, "front", number)
        assert_exact(stack)
        await stack.until_complete(2)
        await until_calm(stack)


async def test_a_frozen_front_refuses_nobody(tmp_path: Path) -> None:
    """Requests that reached it while it was frozen have no place yet, and may come later."""
    async with fronted(tmp_path, settings=HEADERS_ONLY) as stack:
        await account_of(stack, "front", signal.SIGSTOP)
        assert not stack.account.unanswered(), stack.account.unanswered()[:3]
        assert not stack.account.over(), stack.account.describe(stack.broken_at)
        await stack.until_complete(2)
        await until_calm(stack)


async def test_the_account_shows_when_a_picker_is_lost(tmp_path: Path) -> None:
    """The control: without fronts Envoy goes on blindly, and the measurement says so."""
    async with fronted(tmp_path, fronts=None) as stack:
        await account_of(stack, "picker", signal.SIGKILL)
        assert stack.account.blind(stack.broken_at)
        assert stack.account.over()


async def test_a_reload_brings_a_spare_with_the_new_settings(tmp_path: Path) -> None:
    """Which knows them when it leads: here the other names of models."""
    async with fronted(tmp_path) as stack:
        [spare] = await stack.pids("spare")
        config = stack.stack.config
        config.write_text(config.read_text() + "\ndrain_timeout_s: 7\nmodels: {chat: tiny}\n")
        assert stack.stack.picker is not None
        os.kill(stack.stack.picker.pid, signal.SIGHUP)
        await until(lambda: is_gone(spare))
        await stack.until_complete(2)
        log = stack.stack.picker.log.read_text()
        assert "settings reloaded: drain_timeout_s, models" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_is_left_of_a_supervisor_that_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Whether it is asked or killed, and also where one of its processes is stopped."""
    async with fronted(tmp_path) as stack:
        pids = [pid for role in ("core", "spare", "front") for pid in await stack.pids(role)]
        assert len(pids) == 4
        picker = stack.stack.picker
        assert picker is not None
        if number is signal.SIGKILL:
            os.kill(pids[-1], signal.SIGSTOP)
        os.kill(picker.pid, number)
        assert await picker.wait() == (-number if number is signal.SIGKILL else 0)
        for pid in pids:
            await until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


async def test_running_requests_end_before_the_processes_do(tmp_path: Path) -> None:
    async with fronted(tmp_path) as stack:
        await stack.run(offered=0.5, length_s=2.0, seed=1, role="picker", number=signal.SIGTERM)
        picked = [one for one in stack.account.traces.values() if one.arrived_at]
        assert all(one.status == 200 for one in picked)
        picker = stack.stack.picker
        assert picker is not None
        assert await picker.wait() == 0


async def test_a_port_that_is_taken_is_said_once(tmp_path: Path) -> None:
    """The first core cannot begin: all processes end, with its exit code."""
    async with fronted(tmp_path) as stack:
        [free] = free_ports(1)
        text = stack.stack.config.read_text()
        other = tmp_path / "other.yaml"
        other.write_text(text.replace(f":{stack.stack.grpc_port}", f":{free}"))
        stack.stack.config = other
        await stack.stack.restart_picker()
        second = stack.stack.picker
        assert second is not None
        assert await second.wait() == 1
        assert "cannot listen on" in second.log_tail()
        assert "Traceback" not in second.log_tail()
