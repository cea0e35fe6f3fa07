"""The servers of a run behind their fronts, with their agents, and how processes are started."""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Child, Children
from rigs.chaos.front import Front
from rigs.chaos.launch import CENSUS, CLOCK
from rigs.chaos.member import HOST, READY_S
from rigs.chaos.processes import listens
from rigs.chaos.records import Arrival
from rigs.chaos.security import Security

MODEL = ModelShape(embedding=256, layers=8)
CONTEXT_TOKENS = 4096
TOKENS_PER_S = 60.0
"""Of each slot of a simulator."""


class Transport(httpx.AsyncHTTPTransport):
    """httpx's, with an error of its own for a connection that was reset as it was made."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:  # anyio's, over uvloop
            raise httpx.ConnectError(str(error), request=request) from error


@dataclass(eq=False)
class Server:
    """One server, with its front and, where one reports it, its agent."""

    name: str
    slots: int
    backend: int
    front: Front
    command: list[str | Path]
    child: Child | None = None
    agent: Child | None = None
    has_agent: bool = False

    @property
    def address(self) -> str:
        return self.front.address


class Fleet:
    """Agents report to `admins`, which are ports, in turn."""

    def __init__(self, folder: Path, security: Security | None) -> None:
        self.folder = folder
        self.children = Children(folder)
        self.security = security
        self.servers: list[Server] = []
        self.journal: list[Arrival] = []
        self.admins: list[int] = []
        self.http = httpx.AsyncClient(
            timeout=10, transport=Transport(limits=httpx.Limits(max_keepalive_connections=0))
        )
        self.listing = folder / "fleet.json"
        """The file of endpoints."""
        self.census_file = folder / "census.json"
        self.clock_file = folder / "clock"
        self._generation = self._added = 0

    async def add_server(
        self,
        slots: int,
        *,
        kind: str = "simulator",
        has_agent: bool = False,
        flags: tuple[str, ...] = (),
    ) -> Server:
        """Start one more; `list_servers` lists it, or `start_agent` reports it."""
        port, backend = free_ports(2)
        keyed = self.security.server_flags() if self.security else []
        context = self.security.server_context() if self.security else None
        server = Server(
            name=f"{kind}-{self._added}",
            slots=slots,
            backend=backend,
            front=Front(port, backend, self.journal, time.monotonic, context),
            command=[*self._server_command(kind, backend, slots), *keyed, *flags],
            has_agent=has_agent,
        )
        self._added += 1
        await self.start_server(server)
        self.servers.append(server)  # nothing is done to it before it is there
        return server

    async def start_server(self, server: Server) -> None:
        """Start its process, and let its front in when it listens."""
        server.child = await self.start(server.name, server.command)

        await server.child.wait_ready(partial(listens, server.backend), timeout_s=READY_S)
        await server.front.open()

    async def start_agent(self, server: Server) -> None:
        if self.security is not None:
            flags = self.security.agent_flags(server.address)
        else:
            flags = ["--llama", f"http://{server.address}", "--advertise", server.address]
        admin = self.admins[self.servers.index(server) % len(self.admins)]
        server.agent = await self.start(
            f"agent-{server.name}",
            [
                *(sys.executable, "-m", "rigs.chaos.launch", "agent"),
                *("--picker", f"{HOST}:{admin}", "--name", server.name),
                *("--log-format", "json", "--drain-timeout", "5", *flags),
            ],
        )

    def _server_command(self, kind: str, port: int, slots: int) -> list[str | Path]:
        if kind == "simulator":
            return [
                *(sys.executable, "-m", "extproc.demo.simulator", "--port", str(port)),
                *("--slots", str(slots), "--context-tokens", str(CONTEXT_TOKENS)),
                *("--tokens-per-second", str(TOKENS_PER_S)),
            ]
        binary = find_llama_server()
        assert binary is not None, "the caller has checked that there is one"
        model = self.folder / "model.gguf"
        if not model.exists():
            write_model(model, MODEL)
        return [
            *("nice", "-n", "10", binary, "-m", model, "--port", str(port)),
            *("-np", str(slots), "-c", str(CONTEXT_TOKENS * slots), "-t", "1", "--no-webui"),
        ]

    def list_servers(self, servers: list[Server] | None = None) -> None:
        """Write the file of endpoints: these, or all that have no agent."""
        if servers is None:
            servers = [server for server in self.servers if not server.has_agent]
        fresh = self.listing.with_suffix(".new")
        fresh.write_text(json.dumps({"endpoints": [self._named(one) for one in servers]}))
        fresh.replace(self.listing)

    def _named(self, server: Server) -> dict[str, Any]:
        if self.security is not None:
            return {**self.security.endpoint(server.address), "name": server.name}
        return {"address": server.address, "name": server.name}

    async def busy_slots(self, server: Server) -> int:
        """How many slots really work now, asked of the server itself."""
        headers = {}
        if self.security is not None:
            headers["authorization"] = f"Bearer {self.security.server_key.read_text()}"
        answer = await self.http.get(f"http://{HOST}:{server.backend}/slots", headers=headers)
        return sum(slot["is_processing"] for slot in answer.json())

    def move_clock(self, pid: int, seconds: float) -> None:
        """Put the wall clock of a picker or an agent off by so much."""
        self.clock_file.write_text(str(seconds))
        os.kill(pid, signal.SIGUSR2)

    async def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Start a process of ours, whose census and clock can be had."""
        self._generation += 1
        environment = {**os.environ, CENSUS: str(self.census_file), CLOCK: str(self.clock_file)}
        return await self.children.start(
            f"{name}.{self._generation}", command, environment=environment
        )
