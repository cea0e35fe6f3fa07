"""Claims about extproc/fronts/core_call.py."""

from __future__ import annotations

import gc

from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import FakeCore, FakeFront, sent_to

EXCHANGES = 50


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
