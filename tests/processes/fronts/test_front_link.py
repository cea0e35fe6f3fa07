"""Claims about extproc/processes/fronts/front_link.py, over real links."""

from __future__ import annotations

import gc

from extproc.core.held_state import is_leased
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.front_link import FrontLink
from extproc.processes.fronts.link import Link
from extproc.stream.envoy.codec import PROCESS
from extproc.transport.status import OK
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import OTHER, FakeCore, FakeFront, join, sent_to

EXCHANGES = 50


class RecordingFront:
    """Says what the test wants, and keeps the batches that it gets."""

    def __init__(self) -> None:
        self.batches: list[list[Frame]] = []

    async def follow(self, core: FakeCore) -> tuple[Link, FrontLink]:
        """Both ends of its link."""
        here, there = await join(core, self, "front")
        here.say((frames.HELLO, "front", frames.VERSION, (), ()))
        front = core.calls.fronts[there]
        await eventually(lambda: front.has_greeted)
        return here, front

    def heard(self, link: Link, batch: list[Frame]) -> None:
        self.batches.append(batch)

    def lost(self, link: Link) -> None:
        """The test has ended."""

    def of(self, kind: int) -> list[Frame]:
        return [frame for batch in self.batches for frame in batch if frame[0] == kind]


async def test_what_a_call_sends_in_one_turn_leaves_together_and_before_its_end() -> None:
    recorder, core = RecordingFront(), FakeCore(1)
    link, front = await recorder.follow(core)
    core.lead()
    link.say((frames.OPEN, 1, OTHER, (), "one", 100.0))
    await eventually(lambda: 1 in front.calls)
    call = front.calls[1]
    call.send(b"a")
    call.send(b"b")
    await eventually(lambda: recorder.of(frames.REPLIES))
    assert recorder.of(frames.REPLIES) == [(frames.REPLIES, 1, 0, False, None, [b"a", b"b"])]
    call.send(b"c")
    call.finish(OK)
    assert front.calls == {}
    await eventually(lambda: recorder.of(frames.FINISH))
    kinds = [frame[0] for batch in recorder.batches for frame in batch]
    assert kinds[-2:] == [frames.REPLIES, frames.FINISH]
    assert recorder.of(frames.REPLIES)[-1][5] == [b"c"]


async def test_a_state_that_no_other_follows_is_sent_once() -> None:
    recorder, core = RecordingFront(), FakeCore(1)
    link, front = await recorder.follow(core)
    core.lead()
    link.say((frames.OPEN, 1, PROCESS, (), "one", 100.0))
    message = envoy.request_headers(x_request_id="a").SerializeToString()
    link.say((frames.MESSAGE, 1, message))
    await eventually(lambda: any(frame[5] for frame in recorder.of(frames.REPLIES)))
    states = [frame[4] for frame in recorder.of(frames.REPLIES)]
    assert is_leased(states[-1])
    front.changed(front.calls[1])
    await eventually(lambda: len(recorder.of(frames.REPLIES)) > len(states))
    assert recorder.of(frames.REPLIES)[-1][4] is None, "the front knows it"


async def one_exchange(front: FakeFront, core: FakeCore, number: int) -> None:
    call = front.ask(f"r{number}")
    await eventually(lambda: sent_to(call))
    call.say(envoy.response_headers(served=str(sent_to(call))))
    await eventually(lambda: len(call.sent) == 2)
    call.half_close()
    await eventually(lambda: len(core.rig.records) == number + 1 and not len(core.calls))


async def test_an_exchange_that_is_over_leaves_nothing_to_the_garbage_collector() -> None:
    """A collection looks at all that lives, and stops the core meanwhile."""
    front, core = FakeFront(), FakeCore(EXCHANGES + 1)
    await front.follow(core)
    core.lead()
    await one_exchange(front, core, 0)
    gc.collect()
    gc.disable()
    try:
        for number in range(1, EXCHANGES + 1):
            await one_exchange(front, core, number)
        assert gc.collect() < EXCHANGES
    finally:
        gc.enable()
