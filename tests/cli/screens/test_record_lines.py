"""Claims about extproc/cli/screens/record_lines.py: what people read of requests and events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extproc.cli.admin_client import AdminClient, Connection
from extproc.cli.output import Format
from extproc.cli.screens import record_lines
from extproc.cli.screens.record_lines import show_events, show_records, show_request
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, running_picker, until


def record(**changes: Any) -> pb.RequestRecord:
    whole: dict[str, Any] = {
        "exchange_id": "443f40b28dacae2e",
        "request_id": "r1",
        "state": "ended",
        "client": "team-a",
        "model": "tiny",
        "endpoint": "10.0.0.1:8080",
        "endpoint_name": "gpu-1",
        "outcome": "served",
        "status": 200,
        "attempts": 1,
        "ended_at": 1_700_000_000.0,
        "duration_s": 14.2,
    }
    return pb.RequestRecord(**(whole | changes))


def printed(capsys: pytest.CaptureFixture[str], answer: pb.ShowRequestResponse) -> str:
    show_request(answer)
    return capsys.readouterr().out


def test_one_request_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("extproc.cli.output.WIDE", 80)
    part = pb.ShowRequestResponse.Part
    answer = pb.ShowRequestResponse(
        record=record(attempts=2, tier=2),
        parts=[
            part(name="queue", seconds=9.8, text="no server had a free slot, " * 5, is_exact=True),
            part(name="prompt", seconds=120.0, text="as seen from here"),
        ],
        summary="69% of its 14.2 s went to the queue",
        beside="no other request ran on gpu-1 meanwhile",
        same_id=["5f5f"],
        cause="gpu-1 broke it off",
    )
    said = printed(capsys, answer)
    assert "443f40b28dacae2e was served by gpu-1, status 200, after 14s" in said
    assert "client team-a, model tiny" in said
    assert "  gpu-1 broke it off\n  Envoy tried 2 servers; the last one served it\n" in said
    assert "tier 2" in said
    assert "9.80s" in said and "about 2m00s" in said
    assert "No other request ran on gpu-1 meanwhile." in said and "5f5f" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"outcome": "rejected", "reason": "queue-timeout"}, "was rejected: queue-timeout"),
        (
            {"outcome": "withdrawn"},
            "was withdrawn: its client, or Envoy, left before it got to a server",
        ),
        ({"outcome": "broken"}, "broke off at gpu-1"),
        ({"outcome": "broken", "endpoint": "", "endpoint_name": ""}, "broke off,"),
        ({"state": "queued", "outcome": ""}, "is queued"),
        ({"state": "reading", "outcome": ""}, "is still arriving"),
        ({"state": "responding", "outcome": ""}, "runs on gpu-1"),
    ],
)
def test_how_it_ended(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], text: str
) -> None:
    assert text in printed(capsys, pb.ShowRequestResponse(record=record(**changes)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lines, "POLL_S", 0.001)


async def follow(picker: FakePicker, work: Any, said: Any, wanted: int) -> list[str]:
    """Watch until that many lines were printed."""
    lines: list[str] = []

    def enough() -> bool:
        lines.extend(said.readouterr().out.splitlines())
        return len(lines) >= wanted

    connection = Connection(address=f"127.0.0.1:{picker.port}")
    async with AdminClient(connection) as client:
        task = asyncio.create_task(work(client))
        try:
            await until(enough)
        finally:
            task.cancel()
            await asyncio.wait({task})
    return lines


async def test_ended_requests_are_followed(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that were there, and each new one once; for scripts one a line."""
    async with running_picker() as picker:
        picker.add_ready("10.0.0.1:8080", name="gpu-1")

        async def end(name: str) -> None:
            call = await picker.ask(name)
            call.cancel()
            await until(lambda: len(picker.registry) == 0)

        await end("r1")

        async def watch(client: AdminClient) -> None:
            ended = asyncio.create_task(end("r2"))
            request = pb.ListRecordsRequest(since_s=600.0)
            try:
                await show_records(client, request, Format.JSON, is_watching=True)
            finally:
                await asyncio.wait({ended})

        lines = await follow(picker, watch, capsys, 2)
        assert [json.loads(line)["request_id"] for line in lines] == ["r1", "r2"]

        async def table(client: AdminClient) -> None:
            request = pb.ListRecordsRequest()
            await show_records(client, request, Format.TABLE, is_watching=True)

        lines = await follow(picker, table, capsys, 3)
        assert lines[0].split()[:3] == ["ENDED", "REQUEST", "EXCHANGE"] and "r2" in lines[2]


async def test_events_are_followed(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_picker() as picker:
        picker.events.add("joined", "is in the fleet", name="gpu-1")

        async def watch(client: AdminClient) -> None:
            picker.events.add("left", "left the fleet", name="gpu-1")
            await show_events(client, pb.ListEventsRequest(), Format.TABLE, is_watching=True)

        lines = await follow(picker, watch, capsys, 2)
        assert "joined  gpu-1: is in the fleet" in lines[0] and "left  gpu-1" in lines[1]
        picker.events.add("joined", "is in the fleet again", name="gpu-1")
