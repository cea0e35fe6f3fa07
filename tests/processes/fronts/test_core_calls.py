"""Claims about extproc/processes/fronts/core_calls.py: whom a core hears. What is continued is
shown in test_takeover.py."""

from __future__ import annotations

import pytest

from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.link import Link
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import FakeCore, FakeFront, join, sent_to


class OtherVersion:
    """A front of a version that this core does not know."""

    def __init__(self) -> None:
        self.is_lost = False

    async def follow(self, core: FakeCore) -> None:
        here, _ = await join(core, self, "other")
        here.say((frames.HELLO, "other", frames.VERSION + 1, (), (), "more"))
        await eventually(lambda: self.is_lost)

    def heard(self, link: Link, batch: list[Frame]) -> None:
        """Of what it is greeted with, it understands nothing."""

    def lost(self, link: Link) -> None:
        self.is_lost = True


async def test_a_front_of_another_version_is_not_heard_and_others_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries again and again: the log says so once, and the supervisor hears it each time."""
    core, front = FakeCore(1), FakeFront("front")
    reported: list[str] = []
    core.calls.on_other_version = reported.append
    await front.follow(core)
    core.lead()
    for _ in range(3):
        await OtherVersion().follow(core)
    assert reported == ["other"] * 3
    assert [record.message for record in caplog.records if "another version" in record.message] == [
        "front other is of another version of Coxswain and is not heard"
    ]
    await eventually(lambda: core.calls.greeted() == {"front"} and len(core.calls.fronts) == 1)
    call = front.ask("served")
    await eventually(lambda: sent_to(call))
