"""Claims about extproc/admin/calls/usage.py, through a real client."""

from __future__ import annotations

import time
from collections.abc import Collection

import grpc
import pytest

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.usage.counts import HOUR_S, UsageCounts, UsageKey
from extproc.usage.store import UsageError, UsageRow
from tests.fakes.picker import running_picker

ROW = UsageRow(
    UsageKey("web", "chat", "tiny", "2"),
    UsageCounts(requests=3, prompt_tokens=7, slot_s=0.5, cost=0.25),
)


class Reader:
    """Says what it is asked, and answers with one row."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, list[str], int]] = []
        self.error: UsageError | None = None

    async def read(self, since: float, by: Collection[str], limit: int) -> list[UsageRow]:
        self.asked.append((since, list(by), limit))
        if self.error is not None:
            raise self.error
        return [ROW]


async def test_rows_come_as_they_are_asked_for() -> None:
    reader = Reader()
    async with running_picker(read_usage=reader.read) as picker:
        answer = await picker.admin.ListUsage(pb.ListUsageRequest())
        (usage,) = answer.usage
        assert (usage.client, usage.objective, usage.model, usage.tier) == ROW.key
        assert (usage.requests, usage.prompt_tokens, usage.slot_s, usage.cost) == (3, 7, 0.5, 0.25)
        by = [pb.USAGE_GROUP_MODEL, pb.USAGE_GROUP_CLIENT]
        before = time.time()
        await picker.admin.ListUsage(pb.ListUsageRequest(since_s=60, by=by, limit=5))
        await picker.admin.ListUsage(pb.ListUsageRequest(by=[pb.USAGE_GROUP_TOTAL]))
        await picker.admin.ListUsage(pb.ListUsageRequest(by=[pb.USAGE_GROUP_TIER]))
    first, second, third, fourth = reader.asked
    assert fourth[1] == ["tier"]
    assert first[:2] == (0.0, ["client", "objective", "model"])
    assert second[1] == ["client", "model"]
    assert before - 60 - HOUR_S <= second[0] <= before - 60 + 60
    assert second[0] % HOUR_S == 0, "the hour counts whole"
    assert third[1] == []


@pytest.mark.parametrize(
    "request_",
    [
        pb.ListUsageRequest(since_s=-1),
        pb.ListUsageRequest(since_s=float("nan")),
        pb.ListUsageRequest(limit=10_001),
        pb.ListUsageRequest(by=[pb.USAGE_GROUP_UNSPECIFIED]),
    ],
)
async def test_arguments_are_checked(request_: pb.ListUsageRequest) -> None:
    async with running_picker(read_usage=Reader().read) as picker:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.ListUsage(request_)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_without_a_file_the_error_says_what_to_set() -> None:
    """And what is wrong with a file that cannot be read."""
    async with running_picker() as picker:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.ListUsage(pb.ListUsageRequest())
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "usage.path" in (caught.value.details() or "")
    reader = Reader()
    reader.error = UsageError("the disk is gone")
    async with running_picker(read_usage=reader.read) as picker:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picker.admin.ListUsage(pb.ListUsageRequest())
    assert "the disk is gone" in (caught.value.details() or "")
