"""Claims about extproc/cli/commands/requests.py, against a real picker over gRPC."""

from __future__ import annotations

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker, until

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


async def test_who_has_ended(run: Run) -> None:
    """Listed by --since or --outcome, and shown with where the time went."""
    async with running_picker() as picker:
        picker.add_ready(A, name="gpu-1")
        runs = await picker.ask("r0")
        waits = await picker.ask("r1")
        await run("requests", "cancel", "r1", picker=picker)
        waits.cancel()
        await until(lambda: picker.records.total == 1)
        listed = (await run("requests", "--since", "10m", picker=picker)).stdout
        assert "cancelled" in listed and "1 ended" in listed
        nobody = ("requests", "--outcome", "served")
        assert (await run(*nobody, picker=picker)).stdout.strip() == "0 ended"
        (one,) = parsed(await run("requests", "--since", "1h", "-o", "json", picker=picker))[
            "records"
        ]
        assert (one["request_id"], one["outcome"], one["reason"]) == ("r1", "rejected", "cancelled")
        shown = (await run("requests", "show", "r1", picker=picker)).stdout
        assert "was rejected: cancelled" in shown and "of its" in shown and "queue" in shown
        shown = (await run("requests", "show", "r0", picker=picker)).stdout
        assert "runs on gpu-1" in shown and "its server has not answered yet" in shown
        answer = parsed(await run("requests", "show", "r0", "-o", "json", picker=picker))
        assert answer["record"]["state"] == "running" and answer["others"] == 0
        assert (await run("requests", "show", "nobody", picker=picker)).exit_code == 4
        runs.cancel()


async def test_ended_requests_are_selected(run: Run) -> None:
    """By each of the options, and by several together."""
    async with running_picker() as picker:
        picker.add_ready(A, name="gpu-1")
        runs = await picker.ask("r0", headers={"x-gateway-model-name": "tiny"})
        waits = await picker.ask("r1", headers={"x-gateway-model-name": "other"})
        await run("requests", "cancel", "r1", picker=picker)
        waits.cancel()
        await until(lambda: picker.records.total == 1)
        runs.cancel()
        await until(lambda: picker.records.total == 2)

        async def ids(*options: str) -> list[str]:
            answer = parsed(await run("requests", *options, "-o", "json", picker=picker))
            return [each["request_id"] for each in answer["records"]]

        assert await ids("--since", "1h") == ["r1", "r0"]
        assert await ids("--outcome", "broken") == await ids("--endpoint", "gpu-1", "--since", "1h")
        assert await ids("--outcome", "broken", "--model", "tiny") == ["r0"]
        assert await ids("--outcome", "rejected") == await ids("--outcome", "cancelled") == ["r1"]
        assert await ids("--outcome", "rejected", "--model", "tiny") == []
        assert await ids("--since", "1h", "--client", "ann") == []
        assert await ids("--since", "1h", "-n", "1") == ["r0"]
