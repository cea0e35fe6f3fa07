"""Claims about extproc/cli/commands/requests.py, against a real picker over gRPC."""

from __future__ import annotations

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker

A = "10.0.0.1:8080"


async def test_who_runs_who_waits_and_who_is_ended(run: Run) -> None:
    """A queued one leaves the queue, one whose server works is cut off, an unknown one is 4."""
    async with running_picker() as picker:
        picker.add_ready(A)
        calls = [await picker.ask(f"r{number}") for number in range(2)]
        assert "1 running, 1 queued" in (await run("requests", picker=picker)).stdout
        listed = parsed(await run("requests", "-o", "json", picker=picker))["requests"]
        assert [(each["request_id"], each["state"]) for each in listed] == [
            ("r0", "running"),
            ("r1", "queued"),
        ]
        cancelled = await run("requests", "cancel", "r1", picker=picker)
        assert "removed from the queue" in cancelled.stdout
        cut = await run("requests", "cancel", "r0", picker=picker)
        assert f"cut off on {A}" in cut.stdout
        missing = await run("requests", "cancel", "r2", picker=picker)
        assert missing.exit_code == 4
        for call in calls:
            call.cancel()
