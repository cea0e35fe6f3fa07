"""Claims about extproc/admin/calls/scale.py, through a real client."""

from __future__ import annotations

import grpc
import pytest

from extproc.core.observation import ModelReading
from extproc.core.scaling.wanted import MEANINGS, Cause
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import running_picker


async def test_models_are_listed_with_what_decides() -> None:
    """Sorted by name; what is not known is absent."""
    async with running_picker() as picker:
        picker.add_ready("10.0.0.1:8080")
        models = (ModelReading(name="qwen"),)
        picker.observe("10.0.0.1:8080", slots=4, models=models)
        readings = {"coder": ModelReading(name="coder", is_loaded=False)}
        picker.dispatcher.set_loadable("test", readings, 0.0)
        call = await picker.ask("r1")
        found = (await picker.admin.ListScale(pb.ListScaleRequest())).models
        coder, qwen = (one for one in found if one.model)
        assert (coder.model, coder.wanted, coder.servers) == ("coder", 0, 0)
        assert coder.meaning == MEANINGS[Cause.IDLE] and not coder.HasField("slots")
        assert (qwen.model, qwen.wanted, qwen.servers, qwen.slots) == ("qwen", 1, 1, 4)
        assert qwen.busy_slots == 1 and not qwen.HasField("service_s")
        of_one = await picker.admin.ListScale(pb.ListScaleRequest(objective="nobody"))
        assert [one.busy_slots for one in of_one.models] == [0, 0]
        call.cancel()


async def test_an_objective_has_a_bounded_name() -> None:
    async with running_picker() as picker:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.ListScale(pb.ListScaleRequest(objective="x" * 10_000))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
