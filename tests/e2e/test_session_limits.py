"""Limits of sessions and of flows hold requests back, over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.conftest import QUICK
from tests.e2e.stack import Stack, check_rate_limited, until
from tests.e2e.test_clients_page import OPENAI, run, with_package
from tests.fakes.counting_relay import CountingRelay

pytestmark = [pytest.mark.e2e, pytest.mark.llama, pytest.mark.timeout(600)]

ADA, BOB = ({"x-session-id": name} for name in ("ada", "bob"))
TEAM = {"x-gateway-inference-fairness-id": "team"}
AT_ONCE = {"x-coxswain-queue-timeout-ms": "0"}
CALLS, AT_MOST = 8, 4
AGENT = """
import asyncio, sys
import openai

async def main(url, calls):
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        async def call():
            answer = await client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "row"}],
                max_tokens=200,
                extra_body={"ignore_eos": True},
                extra_headers={"x-session-id": "agent"},
            )
            return answer.usage.completion_tokens
        print(*await asyncio.gather(*(call() for _ in range(calls))))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def settings_of(**limit: int) -> dict[str, Any]:
    return {**QUICK, "clients": {"limits": {"*": limit}}}


async def statuses(answers: Iterable[asyncio.Task[httpx.Response]]) -> set[int]:
    return {(await each).status_code for each in answers}


def asking(stack: Stack, headers: Mapping[str, str]) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(stack.ask(headers=dict(headers)))


def reload(stack: Stack, **sections: Any) -> None:
    """Change these sections of the settings file."""
    config = yaml.safe_load(stack.config.read_text())
    stack.config.write_text(yaml.safe_dump(config | sections))
    assert stack.picker is not None
    os.kill(stack.picker.pid, signal.SIGHUP)


async def until_reloaded(stack: Stack, times: int) -> None:
    assert stack.picker is not None
    log = stack.picker.log

    async def is_reloaded() -> bool:
        return log.read_text().count("settings reloaded") == times

    await until(is_reloaded)


async def until_only(stack: Stack, address: str) -> None:
    """Wait until this is the only endpoint, and Envoy sends requests there."""
    await stack.until(lambda status: list(status["endpoints"]) == [address])

    async def is_passing() -> bool:
        ports = await stack.passing_in_envoy()
        answer = await stack.ask()
        return ports == {int(address.rpartition(":")[2])} and answer.status_code == 200

    await until(is_passing)


def held_back(status: dict[str, Any]) -> int:
    """How many requests a session or a flow holds back."""
    return sum(one["by_reason"].get("limit-reached", 0) for one in status["queue"]["models"])


async def test_every_call_of_an_agent_is_answered(llama: None, tmp_path: Path) -> None:
    """With OpenAI's SDK as people have it, of 8 calls at once in a session that may have 4, on a
    server with slots for all. It never has more than 4 of them, and each of them once."""
    settings = settings_of(requests_per_session=AT_MOST)
    async with (
        Stack.running(tmp_path, slots=(CALLS,), settings=settings) as stack,
        CountingRelay(stack.servers[0].address).serving() as relay,
    ):
        reload(stack, endpoints=[{"address": relay.address}])
        await until_only(stack, relay.address)
        before = relay.taken
        words = await with_package(OPENAI, "python", "-c", AGENT)
        out = await run(*words, stack.url("/v1"), str(CALLS))
        assert out.split() == ["200"] * CALLS
        assert relay.taken - before == CALLS and relay.most == AT_MOST


async def test_requests_above_a_limit_wait_and_others_go_on(llama: None, tmp_path: Path) -> None:
    """While slots are idle. One may leave, run out of time or be cancelled meanwhile; a reload lets
    in more."""
    settings = settings_of(requests_per_session=2, requests_per_flow=1)
    async with Stack.running(tmp_path, slots=(8,), settings=settings) as stack:
        held = [await stack.hold(headers=ADA) for _ in range(2)]
        await stack.hold(headers=TEAM)
        waiting = [asking(stack, each) for each in (ADA, ADA, TEAM | BOB)]
        await stack.until(lambda status: held_back(status) == 3)
        for headers, text in (
            (ADA, "This session may have 2 requests at once"),
            (TEAM, "This fairness id may have 1 request at once"),
        ):
            check_rate_limited(await stack.ask(headers=headers | AT_ONCE), text)
            late = await stack.ask(headers=headers | {"x-coxswain-queue-timeout-ms": "300"})
            assert (late.status_code, late.headers["x-coxswain-reason"]) == (504, "queue-timeout")
            assert text in late.json()["error"]["message"]
        for others in (BOB, {}):
            assert (await stack.ask(headers=others)).status_code == 200
        waiting.pop(0).cancel()
        await stack.until(lambda status: held_back(status) == 2)
        waiting.append(asking(stack, ADA | {"x-request-id": "held-back"}))
        await stack.until(lambda status: held_back(status) == 3)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
            await AdminStub(channel).CancelRequest(pb.CancelRequestRequest(id="held-back"))
        cancelled = await waiting.pop()
        assert cancelled.headers["x-coxswain-reason"] == "cancelled"
        await stack.until(lambda status: held_back(status) == 2)
        assert not any(each.done() for each in waiting)

        reload(stack, clients={"limits": {"*": {"requests_per_session": 3}}})
        assert await statuses(waiting) == {200}
        waiting = [asking(stack, ADA), asking(stack, ADA)]
        assert await statuses(waiting) == {200}, "one after the other"

        reload(stack, clients={"limits": {"*": {"requests_per_session": 2}}})
        await until_reloaded(stack, 2)
        waiting = [asking(stack, ADA)]
        await stack.until(lambda status: held_back(status) == 1)
        await held[0].leave()
        assert await statuses(waiting) == {200}, "once its server has ended what its client left"
        await stack.leave_all()


async def test_what_a_session_has_counts_after_a_core_died(llama: None, tmp_path: Path) -> None:
    """The fronts tell the next core of the requests that run, of those that wait and of those that
    are held back."""
    settings = {**settings_of(requests_per_session=2), "fronts": 1}
    async with Stack.running(tmp_path, slots=(4,), settings=settings) as stack:
        await stack.until(has_spare)
        held = [await stack.hold(headers=ADA) for _ in range(2)]
        waiting = [asking(stack, ADA) for _ in range(3)]
        await stack.until(lambda status: held_back(status) == 3)
        (core,) = pids_of(await stack.status(), "core")
        os.kill(core, signal.SIGKILL)
        await stack.until(lambda status: pids_of(status, "core") not in ([core], []))
        await stack.until(lambda status: held_back(status) == 3)
        assert (await stack.ask(headers=BOB)).status_code == 200
        assert not any(each.done() for each in waiting)
        await held[0].leave()
        assert await statuses(waiting) == {200}


def pids_of(status: dict[str, Any], role: str) -> list[int]:
    return [each["pid"] for each in status["processes"]["members"] if each["role"] == role]


def has_spare(status: dict[str, Any]) -> bool:
    return bool(pids_of(status, "spare")) and bool(pids_of(status, "front"))
