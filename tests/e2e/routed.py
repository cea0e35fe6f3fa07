"""A stack whose llama-servers are routers that leave their models to the picker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx

from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import write_model
from extproc.demo.port import free_ports
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.kept import SHAPES, models_by_machine
from tests.e2e.stack import CHAT, Server, Stack, chat
from tests.fakes.http_client import Client


def router_command(
    port: int, models: Path, max_models: int = 1, *, autoloads: bool = False
) -> list[str | Path]:
    """llama-server in router mode, with the same slots and context as kept models."""
    binary = find_llama_server()
    assert binary is not None, "the fixture skips where there is no llama-server"
    return [
        *(binary, "--port", str(port), "--models-dir", models, "--models-max", str(max_models)),
        *("-np", "2", "-c", "16384", "-t", "1", "--no-webui"),
        *(() if autoloads else ("--no-models-autoload",)),
    ]


def write_models(folder: Path, names: Sequence[str]) -> Path:
    """The folder with the models of `kept.SHAPES`."""
    models = folder / "models"
    models.mkdir()
    for name in names:
        write_model(models / f"{name}.gguf", SHAPES[name])
    return models


class RoutedStack:
    """Each server is a router with memory for `max_models` of the models."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    async def models(self) -> dict[str, pb.PlacedModel]:
        """The picker's view of the models of the first router."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.stack.admin_port}") as channel:
            answer = await AdminStub(channel).ListModels(pb.ListModelsRequest())
        first = self.stack.servers[0].address
        return {one.name: one for one in answer.models if one.machine == first}

    async def unload(self, model: str) -> None:
        """An operator unloads a model."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.stack.admin_port}") as channel:
            await AdminStub(channel).UnloadModel(pb.UnloadModelRequest(model=model))

    async def until_state(self, **states: str) -> None:
        """Wait until these models have these states."""
        await self.stack.until(
            lambda status: any(
                all(models[name]["state"] == state for name, state in states.items())
                for models in models_by_machine(status).values()
            )
        )

    async def ask(self, model: str, tokens: int = 4) -> httpx.Response:
        """A whole answer of that model."""
        body = {**chat(tokens), "model": model}
        return await self.stack.client.post(self.stack.url(CHAT), json=body)

    def check(self, model: str, answer: httpx.Response, tokens: int = 4) -> None:
        """The model that was asked for has answered, to the end."""
        assert answer.status_code == 200, (model, answer.headers, answer.text)
        found = answer.json()
        assert (found["model"], found["usage"]["completion_tokens"]) == (model, tokens), found


@asynccontextmanager
async def routed(
    folder: Path,
    names: Sequence[str],
    settings: dict[str, Any],
    *,
    routers: int = 1,
    max_models: int = 1,
    in_pools: Sequence[str] = (),
) -> AsyncIterator[RoutedStack]:
    """A picker, Envoy, and routers that have loaded none of their models, each in its pool if
    `in_pools` names them."""
    models = write_models(folder, names)
    async with (
        ForkedChildren(folder) as children,
        Client(timeout=120, limits=httpx.Limits(max_connections=None)) as client,
    ):
        stack = Stack(folder, children, client)
        for port in free_ports(routers):
            server = Server(port, 2, router_command(port, models, max_models), client)
            stack.servers.append(server)
            await stack.start_server(server)
        if in_pools:
            endpoints = [
                {"address": server.address, "in_pool": pool}
                for server, pool in zip(stack.servers, in_pools, strict=True)
            ]
            settings = {**settings, "endpoints": endpoints}
        await stack.start_picker(settings)
        await stack.start_envoy()
        found = RoutedStack(stack)
        await stack.until(lambda status: len(status["machines"]) == routers)
        assert stack.envoy is not None
        await stack.envoy.wait_ready(lambda: _knows_all(stack), timeout_s=60)
        yield found


async def _knows_all(stack: Stack) -> bool:
    try:
        return {server.port for server in stack.servers} <= await stack.known_to_envoy()
    except httpx.TransportError:
        return False
