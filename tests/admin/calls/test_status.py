"""Claims about extproc/admin/calls/status.py: the processes; its sums are in test_requests.py."""

from __future__ import annotations

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import running_picker
from tests.fakes.processes import some_processes


async def test_the_processes_are_those_of_fronts() -> None:
    async with running_picker(processes=some_processes) as picker:
        found = (await picker.admin.GetStatus(pb.GetStatusRequest())).processes
    assert (found.fronts, found.takeovers) == (2, 3)
    assert dict(found.takeovers_by_reason) == {"ended": 2, "hung": 1, "left": 0}
    assert dict(found.restarts) == {"core": 3, "front": 1}
    assert [each.role for each in found.members] == ["core", "starting spare", "front", "front"]
    front = found.members[2]
    assert (front.name, front.pid, front.number) == ("front-3", 13, 1)
    assert (front.age_s, front.connections, front.calls) == (9.0, 1, 7)
    last = found.last_takeover
    assert (last.seconds, last.running, last.queued, last.fronts) == (0.251, 8, 4, 2)


async def test_one_process_has_none() -> None:
    async with running_picker() as picker:
        found = await picker.admin.GetStatus(pb.GetStatusRequest())
    assert not found.HasField("processes")
