"""Claims about extproc/keeper/server_client.py, with a server that answers as it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from extproc.core.address import Address
from extproc.demo.port import free_ports
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "TINY_KEY"


class Server:
    """Each path gives its answers one after another, the last of them again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, object]]] = {}
        self.keys: list[str | None] = []
        self.asked = 0
        self.address = Address.of("127.0.0.1", free_ports(1)[0])

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.keys.append(request.headers.get("authorization"))
        left = self.answers[request.path]
        status, content = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response(content, status=status)

    def client(self, **entry: object) -> ServerClient:
        made = ModelEntry.model_validate({"cmd": ["x"], "memory_mb": 1, **entry})
        return ServerClient(made, self.address)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", one.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, one.address.host, one.address.port).start()
    yield one
    await runner.cleanup()


async def test_it_is_ready_when_it_says_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key from the environment, which is read when it is needed."""
    monkeypatch.setenv(KEY, " s3cret\n")
    server.answers["/health"] = [(503, {}), (503, {}), (200, {})]
    await server.client(api_key_env=KEY).until_ready()
    assert server.asked == 3
    assert set(server.keys) == {"Bearer s3cret"}


async def test_nobody_there_is_not_ready() -> None:
    waits = asyncio.create_task(Server().client().until_ready())
    await asyncio.sleep(0.2)
    assert not waits.done()
    waits.cancel()


async def test_it_is_idle_when_no_slot_is_busy(server: Server) -> None:
    busy, idle = [{"is_processing": True}], [{"is_processing": False}]
    server.answers["/slots"] = [(200, busy), (200, busy), (200, idle)]
    await server.client().until_idle(60.0)
    assert server.asked == 3


@pytest.mark.parametrize("answer", [(501, {}), (200, "no slots"), (200, None)])
async def test_who_does_not_report_slots_is_not_waited_for(
    server: Server, answer: tuple[int, object]
) -> None:
    server.answers["/slots"] = [answer]
    async with asyncio.timeout(30):
        await server.client().until_idle(3600.0)


async def test_the_wait_for_idle_slots_is_bounded(server: Server) -> None:
    server.answers["/slots"] = [(200, [{"is_processing": True}])]
    async with asyncio.timeout(30):
        await server.client().until_idle(0.3)


async def test_a_proof_says_what_went_wrong(server: Server) -> None:
    server.answers = {"/completion": [(500, {})], "/v1/embeddings": [(501, {})]}
    problem = await server.client().prove()
    assert problem == "/completion answers 500, /v1/embeddings answers 501"
    server.answers["/v1/embeddings"] = [(200, {})]
    assert await server.client().prove() is None
