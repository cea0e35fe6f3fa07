"""Claims about extproc/admin/calls/records.py, over loopback gRPC."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from extproc.core.placement.model_load import ModelLoad
from extproc.core.rejection import Reason
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.settings.logging_section import RecordsSettings
from tests.fakes.picker import FakePicker, running_picker, until

A = "10.0.0.1:8080"


async def show(picker: FakePicker, id_: str) -> pb.ShowRequestResponse:
    return await picker.admin.ShowRequest(pb.ShowRequestRequest(id=id_))


async def code_of(picker: FakePicker, id_: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await show(picker, id_)
    return raised.value.code()


async def test_a_request_is_shown_in_every_state(picker: FakePicker) -> None:
    """Running, queued, and after its end; by either id."""
    picker.add_ready(A, name="gpu-1")
    first = await picker.ask("r1", headers={"x-gateway-model-name": "tiny"})
    second = await picker.ask("r2")
    running = await show(picker, "r1")
    assert (running.record.state, running.record.endpoint_name) == ("running", "gpu-1")
    assert [part.name for part in running.parts] == ["arrival", "queue", "server"]
    assert running.others == 0 and "no other request ran on gpu-1" in running.beside
    queued = await sampled(picker, "r2")
    place = queued.record.place, queued.record.place_of
    assert queued.record.state == "queued" and place == (1, 1)
    assert list(queued.record.waits) == ["no-idle-slot"] and not queued.HasField("others")
    await picker.admin.CancelRequest(pb.CancelRequestRequest(id="r2"))
    second.cancel()
    await until(lambda: picker.records.total == 1)
    ended = await show(picker, "r2")
    assert ended.record.exchange_id == queued.record.exchange_id
    assert (ended.record.state, ended.record.reason) == ("ended", Reason.CANCELLED.value)
    assert ended.record.queued_before == 0 and list(ended.record.waits) == ["no-idle-slot"]
    by_exchange = await show(picker, ended.record.exchange_id)
    assert by_exchange.record.request_id == "r2"
    first.cancel()
    await until(lambda: picker.records.total == 2)
    broken = await show(picker, "r1")
    assert broken.record.outcome == "broken" and broken.record.model == "tiny"


async def test_what_a_request_waits_for_is_told_as_past_once_it_is_over(picker: FakePicker) -> None:
    """While it is queued, as it is at the moment."""
    picker.add_ready(A)
    wake = ModelLoad(model="", where="gpu-2", is_wake=True)
    picker.dispatcher.set_wakes({"": wake})
    runs, waits = await picker.ask("r1"), await picker.ask("r2")
    queued = await sampled(picker, "r2")
    assert queued.record.wait_note == wake.subject
    assert queued.parts[-1].text.endswith(f"; {wake.subject}")
    picker.dispatcher.set_wakes({"": replace(wake, where="gpu-3")})
    assert (await show(picker, "r2")).record.wait_note == "waits for gpu-3 to wake"
    waits.cancel()
    await until(lambda: picker.records.total == 1)
    ended = await show(picker, "r2")
    assert ended.parts[-1].text.endswith(f'what was said then: "{wake.subject}"')
    runs.cancel()


async def sampled(picker: FakePicker, id_: str) -> pb.ShowRequestResponse:
    """A queued request once it was seen why it waits."""
    async with asyncio.timeout(60):
        while not (shown := await show(picker, id_)).record.waits:  # noqa: ASYNC110 - a timer wait
            await asyncio.sleep(0.01)
    return shown


async def test_an_id_that_several_had(picker: FakePicker) -> None:
    """The current one comes first, and the others are named."""
    picker.add_ready(A)
    first = await picker.ask("same")
    first.cancel()
    await until(lambda: picker.records.total == 1)
    picker.observe(A)
    second = await picker.ask("same")
    shown = await show(picker, "same")
    assert shown.record.state in ("running", "queued") and len(shown.same_id) == 1
    assert (await show(picker, shown.same_id[0])).record.state == "ended"
    second.cancel()


async def test_who_is_unknown(picker: FakePicker) -> None:
    assert await code_of(picker, "nobody") is grpc.StatusCode.NOT_FOUND
    assert await code_of(picker, " ") is grpc.StatusCode.INVALID_ARGUMENT


async def test_ended_requests_are_listed_and_followed(picker: FakePicker) -> None:
    """The rest after a response; of another process everything."""
    picker.add_ready(A, name="gpu-1")
    for name in ("r1", "r2"):
        call = await picker.ask(name)
        call.cancel()
        await until(lambda: len(picker.registry) == 0)
    listed = await picker.admin.ListRecords(pb.ListRecordsRequest(since_s=600.0))
    assert [each.request_id for each in listed.records] == ["r1", "r2"]
    assert listed.total == listed.last == 2
    more = pb.ListRecordsRequest(after=listed.last, instance=listed.instance)
    assert not (await picker.admin.ListRecords(more)).records
    more.instance = "another"
    assert len((await picker.admin.ListRecords(more)).records) == 2
    none = pb.ListRecordsRequest(outcome="queue-timeout")
    assert not (await picker.admin.ListRecords(none)).records
    for wrong, said in (
        (pb.ListRecordsRequest(since_s=-1.0), "since_s"),
        (pb.ListRecordsRequest(outcome="queue_timeout"), "queue-timeout"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await picker.admin.ListRecords(wrong)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert said in (raised.value.details() or "")


async def test_ends_of_requests_are_events_by_their_outcome(picker: FakePicker) -> None:
    """By the outcome or the reason, with every other selector, and followed as records are."""
    picker.add_ready(A, name="gpu-1")
    picker.events.add("joined", "is in the fleet", address=A, name="gpu-1")
    runs = await picker.ask("r1", headers={"x-gateway-model-name": "tiny"})
    waits = await picker.ask("r2", headers={"x-gateway-model-name": "tiny"})
    await picker.admin.CancelRequest(pb.CancelRequestRequest(id="r2"))
    waits.cancel()
    await until(lambda: picker.records.total == 1)
    runs.cancel()
    await until(lambda: picker.records.total == 2)

    async def found(**selected: str | float | int) -> list[tuple[str, str]]:
        request = pb.ListEventsRequest(**selected)  # type: ignore[arg-type]  # each by its name
        answer = await picker.admin.ListEvents(request)
        return [(each.kind, each.text.split()[1]) for each in answer.events]

    rejected, broken = ("cancelled", "r2"), ("broken", "r1")
    assert await found(outcome="rejected") == await found(outcome="cancelled") == [rejected]
    assert await found(outcome="broken") == [broken]
    assert await found(outcome="served") == []
    for same in ({"endpoint": "gpu-1"}, {"endpoint": A}, {"model": "tiny"}, {"since_s": 600.0}):
        assert await found(outcome="broken", **same) == [broken]
    for other in ({"endpoint": "gpu-2"}, {"model": "other"}, {"client": "ann"}):
        assert await found(outcome="broken", **other) == []
    assert await found(outcome="rejected", model="tiny") == [rejected]
    answer = await picker.admin.ListEvents(pb.ListEventsRequest(outcome="broken"))
    (end,) = answer.events
    assert (end.endpoint_name, end.model, end.number, answer.last) == ("gpu-1", "tiny", 0, 2)
    assert (await show(picker, end.exchange_id)).record.request_id == "r1"
    last, instance = answer.last, answer.instance
    assert await found(outcome="broken", after=last, instance=instance) == []
    for wrong, said in (
        (pb.ListEventsRequest(outcome="ejected"), "queue-timeout"),
        (pb.ListEventsRequest(outcome="broken", kind="joined"), "only one"),
        (pb.ListEventsRequest(outcome="broken", since_s=-1.0), "since_s"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await picker.admin.ListEvents(wrong)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert said in (raised.value.details() or "")


async def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A folder in its place."""
    settings = RecordsSettings(path=str(tmp_path))
    async with running_picker(record_settings=settings) as picker:
        for call in (
            picker.admin.ShowRequest(pb.ShowRequestRequest(id="nobody")),
            picker.admin.ListRecords(pb.ListRecordsRequest()),
            picker.admin.ListEvents(pb.ListEventsRequest(outcome="served")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call
            assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "cannot be read" in (raised.value.details() or "")


async def test_events_are_selected(picker: FakePicker) -> None:
    picker.events.add("joined", "is in the fleet", address=A, name="gpu-1")
    picker.events.add("model-loaded", "tiny is loaded", name="gpu-1", model="tiny")
    picker.events.add("reloaded", "the settings were reloaded")
    picker.events.add("key-ended", "the key of ann has expired", client="ann")

    async def kinds(**selected: str | float) -> list[str]:
        request = pb.ListEventsRequest(**selected)  # type: ignore[arg-type]  # each by its name
        return [each.kind for each in (await picker.admin.ListEvents(request)).events]

    assert await kinds() == ["joined", "model-loaded", "reloaded", "key-ended"]
    assert await kinds(client="ann") == ["key-ended"] and await kinds(client="bob") == []
    assert await kinds(endpoint="gpu-1") == ["joined", "model-loaded"]
    assert await kinds(endpoint=A) == ["joined"]
    assert await kinds(model="tiny") == ["model-loaded"]
    assert await kinds(kind="reloaded") == ["reloaded"]
    assert len(await kinds(since_s=600.0)) == 4
    assert await kinds(limit=1) == ["key-ended"]
    answer = await picker.admin.ListEvents(pb.ListEventsRequest())
    assert [each.number for each in answer.events] == [1, 2, 3, 4] and answer.last == 4
    more = pb.ListEventsRequest(after=2, instance=answer.instance)
    assert [each.number for each in (await picker.admin.ListEvents(more)).events] == [3, 4]
