"""Claims about extproc/cli/commands/queue.py, against a real picker over gRPC."""

from __future__ import annotations

import asyncio

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker, until

A = "10.0.0.1:8080"


async def test_the_queue_and_one_followed_through_it(run: Run) -> None:
    """Each with its place; the followed one ends at its server."""
    async with running_picker() as picker:
        picker.add_ready(A)
        calls = [await picker.ask(f"r{number}") for number in range(3)]
        waiting = parsed(await run("queue", "-o", "json", picker=picker))["requests"]
        assert [(each["request_id"], each["queue_position"]) for each in waiting] == [
            ("r1", 1),
            ("r2", 2),
        ]
        await run("requests", "cancel", "r1", picker=picker)
        following = asyncio.create_task(run("queue", "watch", "r2", picker=picker))
        await until(lambda: len(asyncio.all_tasks()) > 1)
        calls[0].cancel()
        await until(lambda: len(picker.registry) == 2)  # r1 is over, and its client still here
        picker.observe(A)
        followed = await following
        assert followed.exit_code == 0 and f"served by {A}" in followed.stdout
        for call in calls:
            call.cancel()


async def test_nobody_to_follow(run: Run) -> None:
    async with running_picker() as picker:
        assert (await run("queue", "watch", "r9", picker=picker)).exit_code == 4
