"""The fake says what it is told to, in real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fakes.llama_server import FakeLlamaServer, Reply


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer(busy=(True, False)) as server:
        yield server


@pytest.fixture
async def http(fake: FakeLlamaServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{fake.address}") as client:
        yield client


async def test_it_answers_like_a_llama_server(
    fake: FakeLlamaServer, http: httpx.AsyncClient
) -> None:
    assert (await http.get("/health")).json() == {"status": "ok"}
    assert (await http.get("/props")).json()["total_slots"] == 2
    assert [slot["is_processing"] for slot in (await http.get("/slots")).json()] == [True, False]
    assert (await http.get("/nowhere")).status_code == 404
    assert fake.paths() == ["/health", "/props", "/slots", "/nowhere"]
    assert fake.connections == 1


async def test_it_wants_its_key_except_for_its_health(
    fake: FakeLlamaServer, http: httpx.AsyncClient
) -> None:
    fake.api_key = "sesame"
    assert (await http.get("/slots")).status_code == 401
    assert (await http.get("/health")).status_code == 200
    key = {"Authorization": "Bearer sesame"}
    assert (await http.get("/slots", headers=key)).status_code == 200


async def test_a_router_reports_slots_of_loaded_models_only(
    fake: FakeLlamaServer, http: httpx.AsyncClient
) -> None:
    fake.router_models = {"a": "loaded", "b": "unloaded"}
    codes = [(await http.get(f"/slots?model={m}")).status_code for m in ("a", "b", "")]
    assert codes == [200, 400, 400]


async def test_asking_for_slots_wakes_it(fake: FakeLlamaServer, http: httpx.AsyncClient) -> None:
    fake.is_sleeping = True
    assert (await http.get("/props")).json()["is_sleeping"] is True
    await http.get("/slots")
    assert (await http.get("/props")).json()["is_sleeping"] is False


async def test_scripted_replies_come_late_or_cut(
    fake: FakeLlamaServer, http: httpx.AsyncClient
) -> None:
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply(status=418, body=b"tea", gate=gate)
    asking = asyncio.create_task(http.get("/slots"))
    await fake.was_asked("/slots")
    assert not asking.done()
    gate.set()
    assert (await asking).status_code == 418
    fake.replies["/slots"] = Reply(body=b"x" * 100, cut_after=80)
    with pytest.raises(httpx.RemoteProtocolError):
        await http.get("/slots")


async def test_a_stopped_fake_rejects_connections(
    fake: FakeLlamaServer, http: httpx.AsyncClient
) -> None:
    await http.get("/health")
    await fake.stop()
    assert fake.open_connections == 0
    with pytest.raises(httpx.TransportError):
        await http.get("/health")
    with pytest.raises(httpx.ConnectError):
        await http.get("/health")
