"""Limits of sessions and of flows, over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.conftest import QUICK
from tests.e2e.stack import Stack, check_rate_limited, until

pytestmark = [pytest.mark.e2e, pytest.mark.llama, pytest.mark.timeout(600)]

ADA, BOB = ({"x-session-id": name} for name in ("ada", "bob"))
TEAM = {"x-gateway-inference-fairness-id": "team"}


def settings_of(**limit: int) -> dict[str, Any]:
    return {**QUICK, "clients": {"limits": {"*": limit}}}


async def statuses(answers: Iterable[asyncio.Task[httpx.Response]]) -> set[int]:
    return {(await each).status_code for each in answers}


def asking(stack: Stack, headers: Mapping[str, str]) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(stack.ask(headers=dict(headers)))


async def test_a_session_and_a_flow_have_so_many_requests_at_once(
    llama: None, tmp_path: Path
) -> None:
    """Running and queued. Other sessions and requests without one go on, and after a reload more
    requests begin."""
    settings = settings_of(requests_per_session=2, requests_per_flow=3)
    async with Stack.running(tmp_path, slots=(2,), settings=settings) as stack:
        await stack.hold(headers=ADA)
        await stack.hold()
        queued = [asking(stack, ADA)]
        await stack.until_waiting(1)
        check_rate_limited(await stack.ask(headers=ADA), "This session may have 2 requests at once")
        queued += [asking(stack, each) for each in (BOB, {}, TEAM, TEAM, TEAM)]
        await stack.until_waiting(6)
        over = await stack.ask(headers=TEAM | BOB)
        check_rate_limited(over, "This fairness id may have 3 requests at once")

        config = yaml.safe_load(stack.config.read_text())
        config["clients"]["limits"]["*"] = {"requests_per_session": 3}
        stack.config.write_text(yaml.safe_dump(config))
        assert stack.picker is not None
        os.kill(stack.picker.pid, signal.SIGHUP)
        log = stack.picker.log

        async def is_reloaded() -> bool:
            return "settings reloaded: clients.limits" in log.read_text()

        await until(is_reloaded)
        queued += [asking(stack, each) for each in (ADA, TEAM | BOB)]
        await stack.until_waiting(8)
        check_rate_limited(await stack.ask(headers=ADA), "This session may have 3 requests at once")
        await stack.leave_all()
        assert await statuses(queued) == {200}
        assert (await stack.ask(headers=ADA)).status_code == 200
        await stack.check_audit()


async def test_what_a_session_has_counts_after_a_core_died(llama: None, tmp_path: Path) -> None:
    """The fronts tell the next core of the requests that run and of those that wait."""
    settings = {**settings_of(requests_per_session=2), "fronts": 1}
    async with Stack.running(tmp_path, slots=(1,), settings=settings) as stack:
        await stack.until(has_spare)
        held = await stack.hold(headers=ADA)
        queued = asking(stack, ADA)
        await stack.until_waiting(1)
        check_rate_limited(await stack.ask(headers=ADA), "This session may have 2 requests at once")
        (core,) = pids_of(await stack.status(), "core")
        os.kill(core, signal.SIGKILL)
        await stack.until(lambda status: pids_of(status, "core") not in ([core], []))
        await stack.until_waiting(1)
        check_rate_limited(await stack.ask(headers=ADA), "This session may have 2 requests at once")
        assert not queued.done()
        await held.leave()
        assert (await queued).status_code == 200
        for _ in range(2):
            assert (await stack.ask(headers=ADA)).status_code == 200


def pids_of(status: dict[str, Any], role: str) -> list[int]:
    return [each["pid"] for each in status["processes"]["members"] if each["role"] == role]


def has_spare(status: dict[str, Any]) -> bool:
    return bool(pids_of(status, "spare")) and bool(pids_of(status, "front"))
