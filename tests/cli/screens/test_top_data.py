"""Claims about extproc/cli/screens/top_data.py, against a real picker over gRPC."""

from __future__ import annotations

from extproc.cli.admin_client import AdminClient, Connection
from extproc.cli.screens.top_data import read_top_data
from tests.fakes.picker import running_picker

A, B, C = (f"10.0.0.{number}:8080" for number in (1, 2, 3))


async def test_the_busiest_first_then_who_runs_then_who_waits() -> None:
    """By the share of slots that are busy, whoever uses them; equals by name."""
    async with running_picker() as fake:
        fake.add_ready(A, slots=1, name="zebra")
        calls = [await fake.ask(name) for name in ("runs", "waits")]
        fake.add_ready(C, slots=0, name="empty")
        async with AdminClient(Connection(address=f"127.0.0.1:{fake.port}")) as picker:
            data = await read_top_data(picker)
            told = data.plain()
        for call in calls:
            call.cancel()
    assert [endpoint.name for endpoint in data.endpoints] == ["zebra", "empty"]
    assert [one.request_id for one in data.running] == ["runs"]
    assert [one.request_id for one in data.queued] == ["waits"]
    assert told.keys() == {"status", "endpoints", "running", "queued"}
    assert told["endpoints"][0]["slots"]["leased"] == 1 and told["status"]["queue"]["queued"] == 1
