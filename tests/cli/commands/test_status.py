"""Claims about extproc/cli/commands/status.py: the processes; the rest is in test_habits.py."""

from __future__ import annotations

import dataclasses

from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.processes import Processes
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker
from tests.fakes.processes import some_cluster, some_processes


async def test_the_processes_of_fronts(run: Run) -> None:
    async with running_picker(processes=some_processes) as picker:
        lines = (await run("status", picker=picker)).stdout.splitlines()
        found = parsed(await run("status", "-o", "json", picker=picker))["processes"]
    assert lines[-2:] == [
        (
            "Processes  core 11, starting spare 12, front 13 (1 connections, 7 calls), "
            "front 14 (2 connections, 5 calls)"
        ),
        (
            "Takeovers  3 (1 hung, 2 ended); the last took 0.25 s and found 8 running and "
            "4 queued requests at 2 fronts"
        ),
    ]
    assert found["takeovers_by_reason"] == {"ended": 2, "hung": 1, "left": 0}
    assert [each["pid"] for each in found["members"]] == [11, 12, 13, 14]
    assert found["last_takeover"]["running"] == 8


async def test_the_members_of_a_cluster(run: Run) -> None:
    def clustered() -> Processes:
        return dataclasses.replace(some_processes(), cluster=some_cluster())

    async with running_picker(processes=clustered) as picker:
        lines = (await run("status", picker=picker)).stdout.splitlines()
    text = "Cluster    a leads, b stands by; epoch 7; Valkey or the Kubernetes API does not answer"
    assert lines[-1] == text


async def test_fronts_before_anything_happened(run: Run) -> None:
    def new() -> Processes:
        return dataclasses.replace(some_processes(), members=(), takeovers={}, last_takeover=None)

    async with running_picker(processes=new) as picker:
        lines = (await run("status", picker=picker)).stdout.splitlines()
        found = parsed(await run("status", "-o", "json", picker=picker))["processes"]
    assert lines[-2:] == ["Processes  not known yet", "Takeovers  0"]
    assert found["last_takeover"] is None


async def test_one_process_shows_none(run: Run) -> None:
    async with running_picker() as picker:
        assert "Processes" not in (await run("status", picker=picker)).stdout
        assert parsed(await run("status", "-o", "json", picker=picker))["processes"] is None


async def test_bounds_are_shown_with_what_is_under_them(run: Run) -> None:
    """Without bounds there is no line."""
    async with running_picker() as picker:
        assert "Bounds" not in (await run("status", picker=picker)).stdout
        limits = {
            (BoundKind.MODEL, "tiny"): BoundLimits(running=2),
            (BoundKind.PATH, "/completion"): BoundLimits(queued=5, queue_timeout_s=1.0),
        }
        options = dataclasses.replace(picker.dispatcher.options, bounds=BoundOptions(limits=limits))
        picker.dispatcher.renew(options)
        text = (await run("status", picker=picker)).stdout
        assert "model tiny: 0 of 2 running, 0 queued" in text
        assert "path /completion: 0 running, 0 of 5 queued" in text
        found = parsed(await run("status", "-o", "json", picker=picker))["queue"]["bounds"]
        assert [one["max_running"] for one in found] == [2, None]
        assert [one["queue_timeout_s"] for one in found] == [None, 1.0]
