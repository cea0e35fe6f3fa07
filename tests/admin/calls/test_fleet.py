"""Claims about extproc/admin/calls/fleet.py, through a real client."""

from __future__ import annotations

import asyncio

from extproc.admin.calls.fleet import fleet_message
from extproc.core.observation import MAX_ENTRIES
from extproc.core.views.fleet_capacity import FleetCapacity, ModelCapacity
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import FakePicker

A = "10.0.0.1:8080"


async def test_the_slots_now_and_each_change(picker: FakePicker) -> None:
    """A request through the picker makes a slot busy, and another server brings more."""
    picker.add_ready(A, slots=2)
    call = picker.admin.WatchFleet(pb.WatchFleetRequest())

    async def until_busy(slots: int, busy: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await call.read()
                assert isinstance(message, pb.WatchFleetResponse)
                if (message.slots, message.busy_slots) == (slots, busy):
                    return

    await until_busy(2, 0)
    request = await picker.ask("r1")
    await until_busy(2, 1)
    picker.add_ready("10.0.0.2:8080", slots=3)
    await until_busy(5, 1)
    request.cancel()
    call.cancel()


async def test_a_sign_of_life_without_a_change(picker: FakePicker) -> None:
    picker.add_ready(A, slots=2)
    call = picker.admin.WatchFleet(pb.WatchFleetRequest())
    first, second = await call.read(), await call.read()
    assert first == second
    call.cancel()


def test_single_models_have_slots_only_if_those_are_their_own() -> None:
    models = {f"m{number}": ModelCapacity(slots=1) for number in range(MAX_ENTRIES + 1)}
    common = FleetCapacity(
        slots=2, busy=1, context_tokens=None, has_common_slots=True, models=models
    )
    message = fleet_message(common)
    assert len(message.models) == MAX_ENTRIES
    assert not message.models[0].HasField("slots") and not message.HasField("context_tokens")
    own = FleetCapacity(slots=2, busy=1, context_tokens=512, has_common_slots=False, models=models)
    assert fleet_message(own).models[0].slots == 1 and fleet_message(own).context_tokens == 512
