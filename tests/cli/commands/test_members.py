"""Claims about extproc/cli/commands/members.py."""

from __future__ import annotations

import dataclasses

from extproc.core.processes import Processes
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker
from tests.fakes.processes import some_cluster, some_processes


def clustered() -> Processes:
    return dataclasses.replace(some_processes(), cluster=some_cluster())


async def test_each_member_has_its_role(run: Run) -> None:
    async with running_picker(processes=clustered) as picker:
        lines = (await run("members", picker=picker)).stdout.splitlines()
        found = parsed(await run("members", "-o", "json", picker=picker))
    assert [line.split() for line in lines[1:3]] == [
        ["a", "leader", "10.0.0.2:9004", "2", "1"],
        ["b", "standby", "10.0.0.3:9004", "2", "1"],
    ]
    assert lines[-1] == "! Valkey or the Kubernetes API does not answer: no answer within 0.5 s"
    assert (found["leader"], found["epoch"]) == ("a", 7)


async def test_a_picker_without_a_cluster_says_so(run: Run) -> None:
    async with running_picker() as picker:
        assert "no member of a cluster" in (await run("members", picker=picker)).stdout
