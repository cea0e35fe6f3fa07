"""Where the time of a request went, over real Envoy and a real llama-server: what the picker says
is what the server and the client say."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.conftest import QUICK
from tests.e2e.fronted import fronted
from tests.e2e.stack import CHAT, Stack, chat, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOKENS = 64
PROMPT = "row the boat " * 40


@dataclass(frozen=True)
class Told:
    """What a client got: the server's own timings, and times by its own clock."""

    timings: dict[str, Any]
    first_s: float
    total_s: float


async def ask(stack: Stack, request_id: str, max_tokens: int = TOKENS) -> Told:
    """One request, whose answer is a stream."""
    body = chat(max_tokens, stream=True, content=PROMPT) | {"cache_prompt": True}
    began, first_s = time.monotonic(), None
    timings: dict[str, Any] = {}
    headers = {"x-request-id": request_id}
    async with stack.client.stream("POST", stack.url(CHAT), json=body, headers=headers) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if first_s is None and event["choices"]:
                    first_s = time.monotonic() - began
                timings = event.get("timings", timings)
    assert first_s is not None
    return Told(timings, first_s, time.monotonic() - began)


async def command(stack: Stack, *arguments: str) -> str:
    """What a command of `coxswain` prints, on a terminal that is not one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extproc.cli", *arguments),
        *("--picker", f"127.0.0.1:{stack.admin_port}"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()


async def shown(admin: AdminStub, id_: str) -> pb.ShowRequestResponse:
    return await admin.ShowRequest(pb.ShowRequestRequest(id=id_))


async def until_counted(admin: AdminStub, id_: str) -> pb.ShowRequestResponse:
    """The request, once it has ended and its response was counted."""
    found: list[pb.ShowRequestResponse] = []

    async def is_counted() -> bool:
        found[:] = [await shown(admin, id_)]
        return found[0].record.state == "ended" and found[0].record.is_counted

    await until(is_counted)
    return found[0]


def check(answer: pb.ShowRequestResponse, told: Told) -> dict[str, float]:
    """The server's numbers are those that the client got, and times of the picker are within those
    of the client. Returns the parts."""
    record, timings = answer.record, told.timings
    assert record.prompt_s == pytest.approx(timings["prompt_ms"] / 1000)
    assert record.generated_s == pytest.approx(timings["predicted_ms"] / 1000)
    assert record.generated_tokens == timings["predicted_n"] == TOKENS
    assert record.cached_tokens == timings["cache_n"]
    assert record.prompt_tokens == timings["prompt_n"] + timings["cache_n"]
    parts = {part.name: part.seconds for part in answer.parts}
    assert sum(parts.values()) == pytest.approx(record.duration_s, abs=0.005)
    assert record.waited_s + record.prompt_s <= told.first_s
    assert record.waited_s + record.prompt_s + record.generated_s <= told.total_s
    assert record.server_s >= record.prompt_s + record.generated_s
    return parts


@pytest.mark.llama
async def test_where_the_time_of_a_request_went(llama: None, tmp_path: Path) -> None:
    """One that is queued behind two others, and one beside it; also after the picker was killed."""
    path = tmp_path / "records.jsonl"
    settings = {
        **QUICK,
        "usage": {"path": str(tmp_path / "usage.db")},
        "records": {"path": str(path)},
    }
    async with (
        Stack.running(tmp_path, slots=(2,), settings=settings) as stack,
        grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel,
    ):
        admin = AdminStub(channel)
        holds = [await stack.hold() for _ in range(2)]
        queued = asyncio.create_task(ask(stack, "queued"))
        await stack.until_waiting(1)

        async def is_seen_waiting() -> bool:
            record = (await shown(admin, "queued")).record
            return record.state == "queued" and bool(record.waits)

        await until(is_seen_waiting)
        assert "is queued" in await command(stack, "requests", "show", "queued")
        await holds[0].leave()
        told = await queued
        answer = await until_counted(admin, "queued")
        parts = check(answer, told)
        record = answer.record
        assert record.queued_before == 0 and (record.place, record.place_of) == (1, 1)
        assert set(record.waits) == {"no-idle-slot"}
        assert record.waits["no-idle-slot"] == pytest.approx(record.waited_s, abs=0.002)
        assert parts["queue"] == record.waited_s > 0
        assert answer.others >= 1 and answer.others_most >= 1
        again = await until_counted_again(admin, stack)
        assert again.record.cached_tokens > 0 and not again.record.waits
        await holds[1].leave()

        said = await command(stack, "requests", "show", "queued")
        assert "no server that can serve it had a free slot" in said
        assert f"{TOKENS} tokens at" in said and "by its server's own time" in said
        listed = await command(stack, "requests", "--since", "10m", "--outcome", "served")
        assert record.exchange_id in listed
        assert await ends(stack, "served") >= {record.exchange_id}
        assert not await ends(stack, "rejected")
        events = await command(stack, "events", "-o", "json")
        kinds = [each["kind"] for each in json.loads(events)["events"]]
        assert {"started", "joined", "ready"} <= set(kinds)

        async def is_written() -> bool:
            """With those that were held beside it."""
            return path.exists() and path.read_bytes().count(b'"broken"') == len(holds)

        await until(is_written)
        assert b"boat" not in path.read_bytes()
        await stack.kill(stack.picker)
        await stack.restart_picker()
        await stack.until_ready()
        kept = await shown(admin, "queued")
        assert kept.record.ended_at == pytest.approx(record.ended_at, abs=1.0)
        kept.record.ended_at = record.ended_at
        assert kept.record == record and list(kept.parts) == list(answer.parts)
        assert kept.others >= 1
        assert await ends(stack, "served") >= {record.exchange_id}, "of the file"
        assert len(await ends(stack, "broken")) == len(holds)


async def ends(stack: Stack, outcome: str) -> set[str]:
    """The exchange ids of the ends of requests among the events."""
    said = await command(stack, "events", "--outcome", outcome, "-o", "json")
    return {str(each["exchange_id"]) for each in json.loads(said)["events"]}


async def until_counted_again(admin: AdminStub, stack: Stack) -> pb.ShowRequestResponse:
    """The same prompt once more: it is cached, and does not wait."""
    told = await ask(stack, "again")
    answer = await until_counted(admin, "again")
    check(answer, told)
    return answer


async def test_with_fronts_the_core_keeps_them_and_the_file_outlives_it(tmp_path: Path) -> None:
    """After a takeover the new core shows what the one before it wrote, and says that it took
    over."""
    path = tmp_path / "records.jsonl"
    settings = {"routing": {"read_body": "never"}, "records": {"path": str(path)}}
    async with fronted(tmp_path, settings=settings) as fronts:
        stack = fronts.stack
        headers = {"x-request-id": "before"}
        answer = await stack.client.post(stack.url(CHAT), json={"messages": []}, headers=headers)
        assert answer.status_code == 200

        async def is_written() -> bool:
            return path.exists() and b'"before"' in path.read_bytes()

        await until(is_written)
        before = json.loads(await command(stack, "requests", "show", "before", "-o", "json"))
        assert before["record"]["outcome"] == "served"
        (core,) = await fronts.pids("core")
        fronts.strike(core, signal.SIGKILL)

        async def has_taken_over() -> bool:
            return core not in await fronts.pids("core") and bool(await fronts.pids("core"))

        await until(has_taken_over)
        await fronts.until_complete(2)
        after = json.loads(await command(stack, "requests", "show", "before", "-o", "json"))
        for answer_of_core in (before, after):
            del answer_of_core["record"]["ended_at"]
        assert after["record"] == before["record"] and after["parts"] == before["parts"]
        events = json.loads(await command(stack, "events", "-o", "json"))["events"]
        assert "took-over" in [each["kind"] for each in events]
