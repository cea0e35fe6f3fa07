"""Claims about extproc/cli/commands/events.py, against a real picker over gRPC."""

from __future__ import annotations

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker, until

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


async def test_the_ends_of_requests_with_an_outcome(run: Run) -> None:
    """In place of the fleet's events; an outcome that there is not is said with those that are."""
    async with running_picker() as picker:
        picker.add_ready(A, name="gpu-1")
        picker.events.add("joined", "is in the fleet", address=A, name="gpu-1")
        runs = await picker.ask("\x1b[2Jr1", headers={"x-gateway-model-name": "tiny"})
        runs.cancel()
        await until(lambda: picker.records.total == 1)
        broken = ("events", "--outcome", "broken")
        (one,) = (await run(*broken, picker=picker)).stdout.splitlines()
        assert "broken  gpu-1: request " in one and "r1 for tiny ended: " in one
        assert "\x1b" not in one
        for option, value in (("--endpoint", "gpu-1"), ("--model", "tiny"), ("--since", "10m")):
            answer = parsed(await run(*broken, option, value, "-o", "json", picker=picker))
            assert [each["kind"] for each in answer["events"]] == ["broken"]
        nobody = await run(*broken, "--client", "ann", picker=picker)
        assert nobody.stdout.strip() == "no events"
        wrong = await run("events", "--outcome", "ejected", picker=picker)
        assert wrong.exit_code != 0 and "withdrawn" in wrong.output
