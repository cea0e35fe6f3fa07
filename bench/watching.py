"""How soon watchers of the fleet see a change, and what they cost."""

import asyncio
import random
import time
from statistics import median_high

from bench.result import Row, Say, Section, at_most
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, running_picker

ENDPOINTS = 100
WATCHERS = 50
CHANGES_PER_S = 100
SECONDS = 5.0
SLOTS = 1000


async def measure(say: Say) -> Section:
    """Picker and watchers share one process: its processor time is that of both."""
    async with running_picker() as picker:
        addresses = [f"10.0.0.{host}:8080" for host in range(1, ENDPOINTS + 1)]
        for address in addresses:
            picker.add_ready(address, slots=SLOTS)
        final = _Final()
        watching = [asyncio.create_task(_watch(picker, final)) for _ in range(WATCHERS)]
        await asyncio.sleep(1.0)
        say(f"watching: {WATCHERS} watchers, {CHANGES_PER_S} changes/s for {SECONDS:g} s")
        used, began = time.process_time(), time.monotonic()
        for count in range(1, int(CHANGES_PER_S * SECONDS)):
            address = random.choice(addresses)
            final.changed(address, count % SLOTS)
            picker.observe(address, slots=SLOTS, busy_slots=count % SLOTS)
            await asyncio.sleep(max(0.0, began + count / CHANGES_PER_S - time.monotonic()))
        share = (time.process_time() - used) / (time.monotonic() - began)
        await asyncio.sleep(0.5)
        for task in watching:
            task.cancel()
    return Section(
        title="Watching the fleet",
        method=f"{WATCHERS} watchers of {ENDPOINTS} endpoints, {CHANGES_PER_S} changes a second, "
        "in one process",
        rows=(
            Row(what="median delay", value=f"{1000 * median_high(final.delays_s):.0f} ms"),
            at_most("longest delay", 1000 * max(final.delays_s), 100, " ms"),
            Row(what="share of one core, watchers included", value=f"{100 * share:.0f} %"),
        ),
    )


class _Final:
    """What is true now, and how long watchers took to see it."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, float]] = {}
        self.delays_s: list[float] = []

    def changed(self, address: str, busy: int) -> None:
        self._states[address] = (busy, time.monotonic())

    def seen(self, endpoint: pb.Endpoint) -> None:
        busy, at = self._states.get(endpoint.address, (-1, 0.0))
        if busy == endpoint.slots.foreign:
            self.delays_s.append(time.monotonic() - at)


async def _watch(picker: FakePicker, final: _Final) -> None:
    async for message in picker.admin.WatchEndpoints(pb.WatchEndpointsRequest()):
        for endpoint in message.changed:
            final.seen(endpoint)
