"""Several models behind one address: over real Envoy and real llama-servers in router mode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Children
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Server, Stack, chat, until
from tests.fakes.http_client import Client
from tests.long_run import in_each_mode

pytestmark = [pytest.mark.e2e, in_each_mode]

SMALL = ModelShape(embedding=64, layers=2)
SETTINGS: dict[str, Any] = {
    **QUICK,
    "models": {"chat": {"alpha": 1, "beta": 1}, "first": "alpha"},
    "routing": {"model_match": "strict"},
    "envoy": {"body_buffer_bytes": 100_000},
}


@pytest.fixture
async def stack(llama: None, mode: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Two routers that could load `alpha` and `beta`, and have loaded neither."""
    models = tmp_path / "models"
    models.mkdir()
    for name in ("alpha", "beta"):
        write_model(models / f"{name}.gguf", SMALL)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        Children(tmp_path) as children,
        Client(timeout=60, limits=limits) as client,
    ):
        running = Stack(tmp_path, children, client)
        for _ in range(2):
            await add_router(running, models)
        await running.start_picker(SETTINGS)
        await running.start_envoy(mode)
        await running.until(
            lambda status: {"asleep"} == {e["health"] for e in status["endpoints"].values()}
        )
        assert running.envoy is not None
        await running.envoy.wait_ready(lambda: knows_all(running), timeout_s=30)
        yield running


async def add_router(stack: Stack, models: Path) -> None:
    binary, (port,) = find_llama_server(), free_ports(1)
    assert binary is not None
    flags = ["--port", str(port), "--models-dir", str(models), "-np", "2", "-t", "1", "--no-webui"]
    server = Server(port, 2, [binary, *flags], stack.client)
    stack.servers.append(server)
    await stack.start_server(server)


async def knows_all(stack: Stack) -> bool:
    try:
        return {server.port for server in stack.servers} <= await stack.known_to_envoy()
    except httpx.TransportError:
        return False


async def ask(stack: Stack, model: str, **more: object) -> httpx.Response:
    return await stack.client.post(stack.url(CHAT), json=chat(4) | {"model": model} | more)


async def loaded(server: Server, stack: Stack) -> set[str]:
    """What a router itself says that it has loaded, or is loading."""
    listed = (await stack.client.get(f"http://{server.address}/v1/models")).json()["data"]
    return {one["id"] for one in listed if one["status"]["value"] != "unloaded"}


async def test_models_of_routers(stack: Stack) -> None:
    """A burst for a cold model makes one of them load it; names of the settings are resolved;
    names of other servers are 404, and what cannot be resolved 400."""
    answers = await asyncio.gather(*(ask(stack, "alpha") for _ in range(2)))
    assert [answer.status_code for answer in answers] == [200, 200]
    homes = {answer.headers["x-coxswain-endpoint"] for answer in answers}
    assert len(homes) == 1, "the second waited for the first one's load"
    (home,) = [server for server in stack.servers if server.address in homes]
    (other,) = [server for server in stack.servers if server is not home]
    assert await loaded(other, stack) == set()

    for _ in range(3):
        again = await ask(stack, "first")
        assert (again.status_code, again.json()["model"]) == (200, "alpha")
        assert again.headers["x-coxswain-endpoint"] == home.address
    for _ in range(6):
        assert (await ask(stack, "chat")).status_code == 200

    listed = (await stack.client.get(stack.url("/v1/models"))).json()["data"]
    assert [one["id"] for one in listed] == ["alpha", "beta", "chat", "first"]
    stranger = await ask(stack, "gamma")
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (404, "model_not_found")
    assert stranger.headers["x-coxswain-reason"] == "model-not-found"
    too_long = await ask(stack, "chat", ignored="x" * 3_000_000)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "bad-request")
    by_its_own_name = await ask(stack, "alpha", ignored="x" * 3_000_000)
    assert by_its_own_name.status_code == 200


async def test_a_model_that_cannot_be_loaded_holds_up_nobody(stack: Stack, tmp_path: Path) -> None:
    """Each who asked for it is told by a router, one load after another; `beta` goes on."""
    whole = (tmp_path / "models" / "alpha.gguf").read_bytes()
    (tmp_path / "models" / "alpha.gguf").write_bytes(whole[: len(whole) // 2])
    names = ["alpha", "beta", "alpha", "beta", "alpha"]
    answers = await asyncio.gather(*(ask(stack, name) for name in names))
    assert [answer.status_code for answer in answers] == [500, 200, 500, 200, 500]
    assert all("x-coxswain-reason" not in answer.headers for answer in answers)
    assert (
        len({answers[1].headers["x-coxswain-endpoint"], answers[3].headers["x-coxswain-endpoint"]})
        == 1
    )


async def test_what_a_routers_slots_show_is_learned(stack: Stack) -> None:
    """The pace of its tokens: while it is not known, 200 of them are expected to take 6 s."""
    body = json.dumps(chat(200) | {"model": "alpha"}).encode()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
        admin = AdminStub(channel)

        async def expected_s() -> float:
            told = await admin.Explain(pb.ExplainRequest(body=body))
            scores = {score.name: score.value for score in told.candidates[0].scores}
            return scores["answer_s"]

        async def is_learned() -> bool:
            assert (await ask(stack, "alpha", max_tokens=1_500)).status_code == 200
            return await expected_s() < 3.0

        assert await expected_s() > 6.0
        await until(is_learned)
