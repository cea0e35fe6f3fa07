"""A stack whose llama-servers are started by a keeper."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import yaml

from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Child
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.e2e.stack import CHAT, Stack, chat, until

SHAPES = {
    "small": ModelShape(embedding=64, layers=2, seed=1),
    "medium": ModelShape(embedding=128, layers=4, seed=2),
    "large": ModelShape(embedding=192, layers=6, seed=3),
    "huge": ModelShape(embedding=512, layers=8, seed=4),
}
"""Models whose files differ; the last one has 100 MB."""


class Machine:
    """One machine: the process of its keeper, its file, and the port of each model there."""

    def __init__(self, name: str, file: Path, ports: Mapping[str, int]) -> None:
        self.name = name
        self.file = file
        self.ports = ports
        self.keeper: Child | None = None


class KeptStack:
    """Each machine is the process of a keeper; the first one is gpu-1."""

    def __init__(
        self,
        stack: Stack,
        models: Mapping[str, dict[str, Any]],
        memory_mb: int,
        machines: int = 1,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.stack = stack
        self.gguf: dict[str, Path] = {}
        for name in models:
            self.gguf[name] = stack.folder / f"{name}.gguf"
            write_model(self.gguf[name], SHAPES[name])
        self.machines: list[Machine] = []
        for number in range(1, machines + 1):
            ports = dict(zip(models, free_ports(len(models)), strict=True))
            one = Machine(f"gpu-{number}", stack.folder / f"models-{number}.yaml", ports)
            content = {"memory_mb": memory_mb, "models": self._entries(models, ports), **more}
            one.file.write_text(yaml.safe_dump(content, sort_keys=False))
            self.machines.append(one)
        self._generation = 0

    def _entries(
        self, models: Mapping[str, dict[str, Any]], ports: Mapping[str, int]
    ) -> dict[str, Any]:
        binary = find_llama_server()
        assert binary is not None, "the fixture skips where there is no llama-server"
        return {
            name: {
                "cmd": [
                    *(str(binary), "-m", str(self.gguf[name]), "--alias", name),
                    *("-t", "1", "--no-webui"),
                ],
                "slots": 2,
                "context_tokens": 8192,
                "memory_mb": 10,
                "port": ports[name],
                **entry,
            }
            for name, entry in models.items()
        }

    @property
    def keeper(self) -> Child | None:
        """The keeper of gpu-1."""
        return self.machines[0].keeper

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of the models on gpu-1."""
        return self.machines[0].ports

    async def start_keeper(self, machine: Machine | None = None) -> Child:
        machine = machine or self.machines[0]
        self._generation += 1
        machine.keeper = await self.stack.children.start(
            f"keeper-{machine.name}-{self._generation}",
            [
                *(sys.executable, "-m", "extproc.cli", "keeper", "--models", machine.file),
                *("--picker", f"127.0.0.1:{self.stack.admin_port}"),
                *("--advertise", "127.0.0.1", "--name", machine.name, "--drain-timeout", "5"),
            ],
        )
        return machine.keeper

    async def models(self) -> dict[str, pb.PlacedModel]:
        """The picker's view of the models."""
        import grpc  # noqa: PLC0415  # has no part in a fork

        from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub  # noqa: PLC0415  # the same

        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.stack.admin_port}") as channel:
            answer = await AdminStub(channel).ListModels(pb.ListModelsRequest())
        return {one.name: one for one in answer.models}

    async def until_state(self, **states: str) -> None:
        seen: dict[str, str] = {}

        async def is_so() -> bool:
            nonlocal seen
            seen = {name: one.state for name, one in (await self.models()).items()}
            return states.items() <= seen.items()

        try:
            await until(is_so)
        except TimeoutError:
            assert self.keeper is not None
            raise AssertionError(f"{seen}, not {states}: {self.keeper.log_tail(60)}") from None

    async def until_picked(self, *names: str) -> None:
        """Wait until requests may go to these models."""
        addresses = [f"127.0.0.1:{self.ports[name]}" for name in names]
        await self.stack.until(
            lambda status: all(
                status["endpoints"].get(address, {}).get("health") == "ready"
                for address in addresses
            )
        )

    def pids(self, name: str) -> list[int]:
        """The llama-servers of a model, found by their command lines."""
        return [pid for pid in all_pids() if str(self.gguf[name]) in words_of(pid)]

    def loaded_together(self) -> set[str]:
        """Models whose llama-servers run at the same moment.

        A look at all processes takes time, in which one server ends and the next begins: only
        those count that still run after the last one was seen.
        """
        seen = {name: self.pids(name) for name in self.gguf}
        return {
            name
            for name, pids in seen.items()
            if any(str(self.gguf[name]) in words_of(pid) for pid in pids)
        }

    def server_pid(self, name: str) -> int:
        """The one llama-server, not its guard."""
        return max(pid for pid in self.pids(name) if "guard.py" not in " ".join(words_of(pid)))

    def kill_server(self, name: str) -> None:
        os.kill(self.server_pid(name), signal.SIGKILL)

    async def ask(self, name: str, max_tokens: int = 4) -> httpx.Response:
        """A whole answer of that model."""
        body = {**chat(max_tokens), "model": name}
        return await self.stack.client.post(self.stack.url(CHAT), json=body)

    def check(self, name: str, answer: httpx.Response) -> None:
        """The model that was asked for must have answered."""
        served = answer.headers.get("x-coxswain-endpoint")
        # An endpoint that has left the fleet since goes by its address.
        right = {f"{one.name}.{name}" for one in self.machines}
        right |= {f"127.0.0.1:{one.ports[name]}" for one in self.machines}
        assert answer.status_code == 200 and served in right, (name, answer.headers, answer.text)


def models_by_machine(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The models of each machine by name."""
    found: dict[str, dict[str, Any]] = {}
    for model in status["models"]:
        found.setdefault(model["machine"], {})[model["name"]] = model
    return found


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


@asynccontextmanager
async def kept(
    folder: Path,
    models: Mapping[str, dict[str, Any]],
    memory_mb: int,
    settings: dict[str, Any] | None = None,
    machines: int = 1,
    more: Mapping[str, Any] = MappingProxyType({}),
    *,
    is_started: bool = True,
) -> AsyncIterator[KeptStack]:
    """A picker and Envoy without endpoints of their own, and the keepers of machines, which a test
    starts itself unless `is_started`. `more` is added to the files of the keepers."""
    settings = {"endpoints": [], **(settings or {})}
    async with Stack.running(folder, slots=(), settings=settings) as stack:
        found = KeptStack(stack, models, memory_mb, machines, more)
        for machine in found.machines if is_started else ():
            await found.start_keeper(machine)
        yield found
    assert not any(found.pids(name) for name in models), "no llama-server is left"
