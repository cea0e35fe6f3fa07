"""Claims about extproc/cli/commands/events.py, against a real picker over gRPC."""

from __future__ import annotations

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker

A = "10.0.0.1:8080"


async def test_events_in_words_and_for_scripts(run: Run) -> None:
    """Selected by what the options say; what others wrote moves no cursor."""
    async with running_picker() as picker:
        assert "no events" in (await run("events", picker=picker)).stdout
        picker.events.add("joined", "is in the fleet", address=A, name="gpu-1")
        picker.events.add("issue", "\x1b[2Jit fails", address="10.0.0.2:8080")
        said = (await run("events", "--since", "10m", picker=picker)).stdout.splitlines()
        assert len(said) == 2 and said[0].endswith("joined  gpu-1: is in the fleet")
        assert "\x1b" not in said[1] and "issue  10.0.0.2:8080: " in said[1]
        answer = parsed(await run("events", "--kind", "joined", "-o", "json", picker=picker))
        assert [each["endpoint_name"] for each in answer["events"]] == ["gpu-1"]
        assert answer["total"] == 1 and answer["last"] == 2
        picker.events.add("key-ended", "the key of ann has expired", client="ann")
        (one,) = (await run("events", "--client", "ann", picker=picker)).stdout.splitlines()
        assert one.endswith("key-ended  the key of ann has expired")
        (one,) = (await run("events", "-e", "gpu-1", "-n", "1", picker=picker)).stdout.splitlines()
        assert "gpu-1" in one
