"""Claims about extproc/runners/llama_server/slots_request.py, against a server that speaks real
HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from extproc.runners.client import Answer, Failure, FailureKind, RunnerClient
from extproc.runners.llama_server.slots_request import (
    MAX_REQUESTED_MODELS,
    SlotCounts,
    request_slots,
)
from extproc.runners.target import EndpointTarget
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.patience import PATIENT


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer(busy=(True, False, True)) as server:
        yield server


@pytest.fixture
async def client(fake: FakeLlamaServer) -> AsyncIterator[RunnerClient]:
    client = RunnerClient(EndpointTarget(address=fake.address), PATIENT, time.monotonic)
    yield client
    await client.aclose()


def counted(found: SlotCounts | Answer | Failure) -> SlotCounts:
    assert isinstance(found, SlotCounts), found
    return found


def slots(*busy: bool, context_tokens: int = 4096) -> bytes:
    return json.dumps(
        [
            {"id": number, "n_ctx": context_tokens, "is_processing": one, "id_task": number}
            for number, one in enumerate(busy)
        ]
    ).encode()


async def test_the_slots_of_a_plain_server(fake: FakeLlamaServer, client: RunnerClient) -> None:
    fake.task = 41
    found = counted(await request_slots(client))
    assert (found.slots, found.busy_slots, found.newest_task) == (3, 2, 41)
    assert found.by_model is None and {one.model for one in found.busy} == {""}
    assert found.began_at <= found.answered_at
    assert found.is_first_on_connection
    assert not counted(await request_slots(client)).is_first_on_connection


@pytest.mark.parametrize("status", [401, 500, 501, 503])
async def test_another_status_is_for_the_caller_to_judge(
    fake: FakeLlamaServer, client: RunnerClient, status: int
) -> None:
    fake.replies["/slots"] = Reply.of({}, status)
    found = await request_slots(client)
    assert isinstance(found, Answer) and found.status == status


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'[{"id":0}]', b"\xff"])
async def test_a_garbled_response_is_a_failure_with_its_times(
    fake: FakeLlamaServer, client: RunnerClient, body: bytes
) -> None:
    """What a router's child says is judged alike, and the message quotes nothing of it."""
    fake.replies["/slots"] = Reply(body=body)
    for found in (await request_slots(client), await request_slots(client, ("a",))):
        assert isinstance(found, Failure) and found.kind is FailureKind.UNUSABLE
        assert found.began_at <= found.answered_at


async def test_the_models_of_a_router_are_asked_by_name_and_summed(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    """Their times enclose all of the questions; no model is loaded by one."""
    fake.router_models = {"a/b c": "loaded", "d": "loaded"}
    fake.model_slots = {"d": slots(True, context_tokens=8192)}
    found = counted(await request_slots(client, ("a/b c", "d")))
    assert found.by_model == {"a/b c": (3, 2), "d": (1, 1)}
    assert (found.slots, found.busy_slots, found.context_tokens) == (4, 3, 8192)
    assert [one.model for one in found.busy] == ["a/b c", "a/b c", "d"]
    assert found.newest_task is None, "each model numbers its own tasks"
    assert found.is_first_on_connection and found.began_at <= found.answered_at
    assert [asked.query["autoload"] for asked in fake.asked] == [["false"]] * 2


async def test_a_model_that_was_unloaded_meanwhile_is_left_out(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    fake.router_models = {"a": "unloaded", "b": "loaded"}
    found = counted(await request_slots(client, ("a", "b")))
    assert found.by_model == {"b": (3, 2)}


async def test_where_no_model_is_loaded_any_more_the_last_rejection_is_returned(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    fake.router_models = {"a": "unloaded", "b": "sleeping"}
    found = await request_slots(client, ("a", "b"))
    assert isinstance(found, Answer) and found.status == 400


async def test_a_broken_model_spoils_the_whole_count(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    """Half a sum would show busy slots as free."""
    fake.router_models = {"a": "loaded", "b": "loaded"}
    fake.model_slots = {"b": b"row"}
    assert isinstance(await request_slots(client, ("a", "b")), Failure)
    fake.replies["/slots"] = Reply.of({}, 500)
    found = await request_slots(client, ("a", "b"))
    assert isinstance(found, Answer) and found.status == 500


async def test_a_sum_that_no_server_can_have_is_a_failure(
    fake: FakeLlamaServer, client: RunnerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model's own count is possible: the core would reject the sum as a misread."""
    monkeypatch.setattr("extproc.runners.llama_server.slots_request.MAX_SLOTS", 5)
    fake.router_models = {"a": "loaded", "b": "loaded"}
    assert counted(await request_slots(client, ("a",))).slots == 3
    found = await request_slots(client, ("a", "b"))
    assert isinstance(found, Failure) and "more than 5 slots" in found.message


async def test_only_so_many_models_are_asked(fake: FakeLlamaServer, client: RunnerClient) -> None:
    """A router may list thousands; a scrape has an end."""
    names = tuple(f"m{number}" for number in range(MAX_REQUESTED_MODELS + 5))
    fake.router_models = dict.fromkeys(names, "loaded")
    found = counted(await request_slots(client, names))
    assert found.by_model is not None and len(found.by_model) == MAX_REQUESTED_MODELS
    assert fake.count("/slots") == MAX_REQUESTED_MODELS
