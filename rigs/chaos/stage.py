"""The processes of a run: servers behind their fronts, agents, the picker and Envoy."""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import yaml

from extproc.app.envoy import envoy_options
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Child, Children, until
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import Mode
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.settings import load_settings
from rigs.chaos.front import Front
from rigs.chaos.launch import CENSUS, CLOCK
from rigs.chaos.records import Arrival
from rigs.chaos.security import CLIENT_KEY, Security

READY_S = 60.0
MODEL = ModelShape(embedding=256, layers=8)
CONTEXT_TOKENS = 4096
HOST = "127.0.0.1"
COMPLETIONS = "/v1/chat/completions"
QUIET_LOG_MS = 100
"""How late a line of Envoy's access log may be."""


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


class Stage:
    """Build it part by part, then `until_ready`. Everything ends with `children`."""

    def __init__(
        self,
        folder: Path,
        children: Children,
        *,
        mode: str = "discovery",
        security: Security | None = None,
        settings: dict[str, Any] | None = None,
        tokens_per_s: float = 60.0,
        fronts: int = 0,
    ) -> None:
        self.fronts = fronts
        self.folder = folder
        self.children = children
        self.mode = mode
        self.security = security
        self.tokens_per_s = tokens_per_s
        self.servers: list[Server] = []
        self.journal: list[Arrival] = []
        self.picker: Child | None = None
        self.envoy: Child | None = None
        self.envoy_logs: list[Path] = []
        self.picker_logs: list[Path] = []
        self.http = httpx.AsyncClient(timeout=10, limits=httpx.Limits(max_keepalive_connections=0))
        self.envoy_port, self.envoy_admin, self._grpc, self.admin, self._status = free_ports(5)
        self._settings = settings or {}
        self._config = folder / "coxswain.yaml"
        self._fleet = folder / "fleet.json"
        self._census = folder / "census.json"
        self._clock = folder / "clock"
        self._generation = self._added = 0

    # Servers

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
        server.child = await self._start(server.name, server.command)

        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection(HOST, server.backend)
            except OSError:
                return False
            writer.close()
            return True

        await server.child.wait_ready(listens, timeout_s=READY_S)
        await server.front.open()

    async def stop_server(self, server: Server, grace_s: float) -> None:
        """SIGTERM, or SIGKILL without a grace; its port refuses when it is gone."""
        assert server.child is not None
        if grace_s:
            await server.child.stop(grace_s)
        server.child.kill()
        await server.front.close()
        await server.child.wait()

    async def start_agent(self, server: Server) -> None:
        if self.security is not None:
            flags = self.security.agent_flags(server.address)
        else:
            flags = ["--llama", f"http://{server.address}", "--advertise", server.address]
        server.agent = await self._start(
            f"agent-{server.name}",
            [
                *(sys.executable, "-m", "rigs.chaos.launch", "agent"),
                *("--picker", f"{HOST}:{self.admin}", "--name", server.name),
                *("--log-format", "json", "--drain-timeout", "5", *flags),
            ],
        )

    def _server_command(self, kind: str, port: int, slots: int) -> list[str | Path]:
        if kind == "simulator":
            return [
                *(sys.executable, "-m", "extproc.demo.simulator", "--port", str(port)),
                *("--slots", str(slots), "--context-tokens", str(CONTEXT_TOKENS)),
                *("--tokens-per-second", str(self.tokens_per_s)),
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
        fresh = self._fleet.with_suffix(".new")
        fresh.write_text(json.dumps({"endpoints": [self._named(one) for one in servers]}))
        fresh.replace(self._fleet)

    def _named(self, server: Server) -> dict[str, Any]:
        if self.security is not None:
            return {**self.security.endpoint(server.address), "name": server.name}
        return {"address": server.address, "name": server.name}

    # The picker and Envoy

    async def start_picker(self) -> None:
        self._write_settings()
        self.picker = await self._start(
            "picker",
            [sys.executable, "-m", "rigs.chaos.launch", "serve", "--config", self._config],
        )
        self.picker_logs.append(self.picker.log)
        await self.picker.wait_ready(self._picker_is_up, timeout_s=READY_S)

    def _write_settings(self) -> None:
        secured = self.security
        values: dict[str, Any] = {
            "listen": {
                "grpc": f"{HOST}:{self._grpc}",
                "admin": f"{HOST}:{self.admin}",
                "http": f"{HOST}:{self._status}",
            },
            "discovery": {"file": str(self._fleet)},
            "log": {"format": "json"},
            **(secured.settings() if secured else {}),
            **({"fronts": self.fronts} if self.fronts else {}),
        }
        for section, chosen in self._settings.items():
            if isinstance(chosen, dict):
                values[section] = {**values.get(section, {}), **chosen}
            else:
                values[section] = chosen
        values["envoy"] = {
            "listen": f"{HOST}:{self.envoy_port}",
            "admin": f"{HOST}:{self.envoy_admin}",
            "discovery": self.mode != "original-dst",
            **self._settings.get("envoy", {}),
            **(secured.envoy_settings() if secured else {}),
        }
        self._config.write_text(yaml.safe_dump(values))

    async def _picker_is_up(self) -> bool:
        try:
            return bool((await self.status())["endpoints"])
        except (httpx.HTTPError, ValueError):
            return False

    async def start_envoy(self) -> None:
        config = self.folder / "envoy.yaml"
        options = envoy_options(load_settings(self._config, environ={}))
        config.write_text(bootstrap(replace(options, mode=Mode(self.mode))))
        config.chmod(0o600)
        self.envoy = await self._start(
            "envoy",
            [
                *(find_envoy(), "-c", config, "--concurrency", "1", "--use-dynamic-base-id"),
                *("--log-level", "warning", "--file-flush-interval-msec", str(QUIET_LOG_MS)),
                *("--drain-time-s", "1", "--parent-shutdown-time-s", "2"),
            ],
        )
        self.envoy_logs.append(self.envoy.log)
        await self.envoy.wait_ready(self._envoy_is_up, timeout_s=READY_S)

    async def _envoy_is_up(self) -> bool:
        """Whether requests go through it by way of the picker."""
        try:
            answer = await self.http.post(
                f"http://{HOST}:{self.envoy_port}{COMPLETIONS}",
                json={"messages": [{"role": "user", "content": "ready"}], "max_tokens": 1},
                headers={"authorization": f"Bearer {CLIENT_KEY}"} if self.security else {},
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers

    async def until_ready(self) -> None:
        """Wait until the picker finds every server ready."""

        async def is_ready() -> bool:
            endpoints = (await self.status())["endpoints"]
            return all(
                endpoints.get(server.address, {}).get("health") in ("ready", "degraded")
                for server in self.servers
            )

        async with asyncio.timeout(READY_S):
            await until(is_ready)

    async def until_known(self) -> None:
        """Wait until a picker that was lost knows the fleet again, and Envoy knows it."""

        async def is_known() -> bool:
            try:
                status = await self.status()
            except (httpx.HTTPError, ValueError):
                return False
            is_met = bool(status["envoys"]) or self.mode == "original-dst"
            return is_met and any(
                one["health"] in ("ready", "degraded") for one in status["endpoints"].values()
            )

        async with asyncio.timeout(READY_S):
            await until(is_known)

    async def until_complete(self, lost: int = 0) -> None:
        """Wait until all processes of the picker are there again, and the lost one is not."""

        async def is_complete() -> bool:
            try:
                members = await self._members()
            except (httpx.HTTPError, ValueError):
                return False
            roles = [role for role, pid in members if pid != lost]
            return len(roles) == len(members) and sorted(roles) == sorted(
                ["core", "spare", *["front"] * self.fronts]
            )

        async with asyncio.timeout(READY_S):
            await until(is_complete)

    # What can be seen

    async def _members(self) -> list[tuple[str, int]]:
        """The picker's processes: role and process id."""
        processes = (await self.status()).get("processes") or {"members": []}
        return [(one["role"], one["pid"]) for one in processes["members"]]

    async def pids(self, role: str) -> list[int]:
        """The picker's processes of this role; none while no core answers."""
        try:
            return [pid for one, pid in await self._members() if one == role]
        except (httpx.HTTPError, ValueError):
            return []

    async def core_pid(self) -> int:
        """The process that decides."""
        assert self.picker is not None
        if not self.fronts:
            return self.picker.pid
        await self.until_complete()
        [pid] = await self.pids("core")
        return pid

    async def status(self) -> dict[str, Any]:
        answer = await self.http.get(f"http://{HOST}:{self._status}/status")
        status: dict[str, Any] = answer.json()
        return status

    async def metric(self, name: str) -> float | None:
        """The sum of a metric's samples, which may be none; None where it is not there at all."""
        text = (await self.http.get(f"http://{HOST}:{self._status}/metrics")).text
        samples = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(name) and line[len(name) : len(name) + 1] in ("{", " ")
        ]
        return sum(samples) if f"# TYPE {name}" in text else None

    async def envoy_stats(self) -> dict[str, int]:
        answer = await self.http.get(f"http://{HOST}:{self.envoy_admin}/stats?usedonly")
        pairs = (line.split(": ") for line in answer.text.splitlines() if ": " in line)
        return {name: int(value) for name, value in pairs if value.isdigit()}

    async def census(self) -> dict[str, int]:
        """What lives in the picker's process."""
        self._census.unlink(missing_ok=True)
        os.kill(await self.core_pid(), signal.SIGUSR1)

        async def is_written() -> bool:
            return self._census.exists()

        async with asyncio.timeout(READY_S):
            await until(is_written)
        found: dict[str, int] = json.loads(self._census.read_text())
        return found

    async def busy_slots(self, server: Server) -> int:
        """How many slots really work now, asked of the server itself."""
        headers = {}
        if self.security is not None:
            headers["authorization"] = f"Bearer {self.security.server_key.read_text()}"
        answer = await self.http.get(f"http://{HOST}:{server.backend}/slots", headers=headers)
        return sum(slot["is_processing"] for slot in answer.json())

    def admin_stub(self) -> tuple[grpc.aio.Channel, AdminStub]:
        """An operator's connection; close the channel."""
        address = f"{HOST}:{self.admin}"
        if self.security is not None:
            channel = self.security.channel(address)
        else:
            channel = grpc.aio.insecure_channel(address)
        return channel, AdminStub(channel)

    def move_clock(self, pid: int, seconds: float) -> None:
        """Put the wall clock of a picker or an agent off by so much."""
        self._clock.write_text(str(seconds))
        os.kill(pid, signal.SIGUSR2)

    async def stop(self) -> None:
        """End Envoy and the picker in peace, so that their logs are complete."""
        for child in (self.envoy, self.picker):
            if child is not None:
                await child.stop()

    async def close(self) -> None:
        for server in self.servers:
            await server.front.close()
        await self.http.aclose()

    async def _start(self, name: str, command: list[str | Path]) -> Child:
        self._generation += 1
        environment = {**os.environ, CENSUS: str(self._census), CLOCK: str(self._clock)}
        return await self.children.start(
            f"{name}.{self._generation}", command, environment=environment
        )


def thaw(child: Child | None) -> None:
    """Let a stopped process go on."""
    if child is not None and child.is_running:
        os.kill(child.pid, signal.SIGCONT)


def freeze(child: Child | None) -> None:
    """SIGSTOP."""
    if child is not None and child.is_running:
        os.kill(child.pid, signal.SIGSTOP)
