"""A whole stack on loopback: servers, the picker and Envoy as the processes that people run.

Those of Python are forked in the short run: see `fork_server`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from extproc.demo.envoy_binary import find_envoy
from extproc.demo.fleet import PLAIN_SLOTS, cluster_probe
from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Child, Children
from extproc.envoy_config.options import EnvoyOptions, Mode, envoy_options
from extproc.settings import load_settings
from tests.e2e.forked_children import ForkedChildren
from tests.fakes import envoy_text
from tests.fakes.http_client import Client
from tests.fakes.patience import PATIENCE_S

MODEL_SHAPE = ModelShape(embedding=256, layers=8)
"""Slow enough that an answer of thousands of tokens outlasts a test, quick for a few tokens."""
CONTEXT_TOKENS = 16_384
ROOT = Path(__file__).parents[2]
READY_S = 60.0
PATIENT_SCRAPER = {"connect_timeout_s": 20.0, "read_timeout_s": 20.0}
"""On a busy machine a server that is well may not get to answering for seconds."""
MERGED = {"envoy", "scraper"}
"""Sections of which a stack sets some, and a test may set others."""
POLL_S = 0.05
AUDIT = "coxswain_audit_corrections_total{"
CHAT = "/v1/chat/completions"


def chat(max_tokens: int, *, stream: bool = False, content: str = "row") -> dict[str, Any]:
    """A chat request whose answer has exactly `max_tokens` tokens."""
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": stream,
        "cache_prompt": False,
    }


def check_rate_limited(answer: httpx.Response, message: str) -> None:
    """Rejected as OpenAI's API rejects; its SDKs read it, wait and ask again."""
    assert answer.status_code == 429, answer.text
    assert answer.headers["x-coxswain-reason"] == "rate-limited"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate-limited")
    assert message in error["message"]
    assert int(answer.headers["retry-after"]) >= 1


@dataclass
class Server:
    """One llama-server of the stack."""

    port: int
    slots: int
    command: list[str | Path]
    client: httpx.AsyncClient = field(repr=False)
    child: Child | None = None
    host: str = "127.0.0.1"
    context: str = "auto"
    """What the picker's settings say of its context."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def busy(self) -> int:
        """How many slots really work now, asked of the server itself."""
        answer = await self.client.get(f"http://{self.address}/slots")
        return sum(slot["is_processing"] for slot in answer.json())

    async def is_ready(self) -> bool:
        try:
            answer = await self.client.get(f"http://{self.address}/health")
        except httpx.TransportError:
            return False
        return answer.status_code == 200


class Held:
    """A streamed answer that goes on until somebody ends it."""

    def __init__(self, response: httpx.Response, stack: AsyncExitStack) -> None:
        self.response = response
        self.endpoint = response.headers.get("x-coxswain-endpoint", "")
        self._stack = stack
        self._chunks = response.aiter_lines()

    async def next_chunk(self) -> str:
        """The next line with content; raises what the connection raises, '' at the end."""
        async for line in self._chunks:
            if line:
                return line
        return ""

    async def read_on(self) -> None:
        """Read until the end, forgetting what comes."""
        async for _ in self._chunks:
            pass

    async def leave(self) -> None:
        """Close the connection, finished or not."""
        await self._stack.aclose()


class Stack:
    """Start it with `async with Stack.running(folder, slots=(2, 4)) as stack`."""

    def __init__(self, folder: Path, children: Children, client: httpx.AsyncClient) -> None:
        self.folder = folder
        self.children = children
        self.client = client
        self.servers: list[Server] = []
        self.envoy: Child | None = None
        self.picker: Child | None = None
        self.envoy_port, self.envoy_admin_port, self.grpc_port, self.admin_port, self.http_port = (
            free_ports(5)
        )
        self._generation = 0
        self._held: list[Held] = []  # or the collector would close their connections

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        folder: Path,
        *,
        slots: tuple[int, ...] = (2, 4),
        shared_tokens: tuple[int, ...] = (),
        context: str = "auto",
        shapes: tuple[ModelShape, ...] = (),
        flags: tuple[tuple[str | Path, ...], ...] = (),
        settings: dict[str, Any] | None = None,
        kind: str = "llama",
        mode: str = "discovery",
        alter: Callable[[str], str] = str,
        key: str = "",
    ) -> AsyncIterator[Self]:
        """Everything up and ready; everything gone afterwards. `mode` is that of Envoy, whose
        configuration `alter` may change; `key` is the client's, if keys are checked;
        `shapes` are those of the servers' models, where they
        are not all alike, and `flags` those of their commands. With `shared_tokens`, servers are
        started plainly instead, without a number of slots: all four share that context, of which
        the settings say `context`."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with (
            ForkedChildren(folder) as children,
            Client(timeout=60, limits=limits, headers=headers) as client,
        ):
            stack = cls(folder, children, client)
            if shared_tokens:
                slots = (PLAIN_SLOTS,) * len(shared_tokens)
            shapes = shapes or (MODEL_SHAPE,) * len(slots)
            for number, (count, shape) in enumerate(zip(slots, shapes, strict=True)):
                more = flags[number] if flags else ()
                shared = shared_tokens[number] if shared_tokens else None
                await stack.add_server(
                    count, kind=kind, shape=shape, flags=more, shared_tokens=shared, start=False
                )
            for server in stack.servers:
                server.context = context
            await stack.boot(settings or {}, mode, alter)
            try:
                yield stack
                await stack.check_audit()
            finally:
                await stack.thaw()

    # Parts

    async def boot(
        self,
        settings: dict[str, Any] | None = None,
        mode: str = "discovery",
        alter: Callable[[str], str] = str,
    ) -> None:
        """Start all servers that do not run, the picker and Envoy, all at once but for Envoy,
        which would wait longer for a picker that comes after it; return when they are ready."""
        async with asyncio.TaskGroup() as group:
            for server in self.servers:
                if server.child is None:
                    group.create_task(self.start_server(server))
            await self.start_picker(settings or {})
            assert self.picker is not None
            await self.picker.wait_ready(self._picker_listens, timeout_s=READY_S)
            await self.start_envoy(mode, alter)
        await self.until_ready()

    async def add_server(
        self,
        slots: int,
        *,
        kind: str = "llama",
        port: int | None = None,
        host: str = "127.0.0.1",
        start: bool = True,
        flags: tuple[str | Path, ...] = (),
        shape: ModelShape = MODEL_SHAPE,
        shared_tokens: int | None = None,
    ) -> Server:
        port = port or free_ports(1)[0]
        command = self._server_command(kind, port, slots, shape, shared_tokens)
        command += ["--host", host, *flags]
        server = Server(port, slots, command, self.client, host=host)
        self.servers.append(server)
        if start:
            await self.start_server(server)
        return server

    async def start_server(self, server: Server) -> None:
        self._generation += 1
        server.child = await self.children.start(
            f"server-{server.port}-{self._generation}", server.command
        )
        await server.child.wait_ready(server.is_ready, timeout_s=READY_S)

    def _server_command(
        self, kind: str, port: int, slots: int, shape: ModelShape, shared_tokens: int | None
    ) -> list[str | Path]:
        if kind == "simulator":
            return [
                *(sys.executable, "-m", "extproc.demo.simulator", "--port", str(port)),
                *("--slots", str(slots), "--context-tokens", str(CONTEXT_TOKENS)),
                *("--tokens-per-second", "200"),
            ]
        if kind == "faulty":
            start = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
            start += "from tests.fakes.faulty_server import main; main()"
            return [
                *(sys.executable, "-c", start, ROOT, "--port", str(port), "--slots", str(slots)),
                *("--service-time", "0.1"),
            ]
        binary = find_llama_server()
        assert binary is not None, "the fixture skips where there is no llama-server"
        model = self.folder.parent / f"model-{shape.embedding}-{shape.layers}.gguf"
        if not model.exists():
            write_model(model, shape)
        split = ["-np", str(slots), "-c", str(CONTEXT_TOKENS * slots)]
        return [
            *("nice", "-n", "10", binary, "-m", model, "--port", str(port)),
            *(split if shared_tokens is None else ["-c", str(shared_tokens)]),
            *("-t", "1", "--no-webui"),
        ]

    async def start_picker(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        config = {
            "listen": {
                "grpc": f"127.0.0.1:{self.grpc_port}",
                "admin": f"127.0.0.1:{self.admin_port}",
                "http": f"127.0.0.1:{self.http_port}",
            },
            "envoy": {
                "listen": f"127.0.0.1:{self.envoy_port}",
                "admin": f"127.0.0.1:{self.envoy_admin_port}",
                "message_timeout_s": PATIENCE_S,
                **settings.get("envoy", {}),
            },
            "scraper": {**PATIENT_SCRAPER, **settings.get("scraper", {})},
            "endpoints": [
                {"address": server.address, "context": server.context} for server in self.servers
            ],
            **{key: value for key, value in settings.items() if key not in MERGED},
        }
        self.config = self.folder / "coxswain.yaml"
        self.config.write_text(yaml.safe_dump(config))
        await self.restart_picker()

    async def restart_picker(self) -> None:
        self._generation += 1
        self.picker = await self.children.start(
            f"picker-{self._generation}",
            [sys.executable, "-m", "extproc.cli", "serve", "--config", self.config],
        )

    async def start_envoy(self, mode: str = "discovery", alter: Callable[[str], str] = str) -> None:
        options = envoy_options(load_settings(self.config, environ={}))
        self.envoy = await self._start_envoy("envoy", replace(options, mode=Mode(mode)), alter)

    async def start_another_envoy(
        self, mode: str = "discovery", alter: Callable[[str], str] = str
    ) -> str:
        """Start one before the same picker; returns the beginning of its URLs."""
        port, admin = free_ports(2)
        options = envoy_text.options_with(
            envoy_options(load_settings(self.config, environ={})),
            mode=Mode(mode),
            listen=f"127.0.0.1:{port}",
            admin=f"127.0.0.1:{admin}",
        )
        await self._start_envoy(f"envoy-{port}", options, alter)
        return f"http://127.0.0.1:{port}"

    async def _start_envoy(
        self, name: str, options: EnvoyOptions, alter: Callable[[str], str] = str
    ) -> Child:
        config = self.folder / f"{name}.yaml"
        config.write_text(alter(envoy_text.printed(options)))
        return await self.children.start(
            name,
            [
                *(find_envoy(), "-c", config, "--concurrency", "1", "--use-dynamic-base-id"),
                *("--log-level", "warning"),
            ],
        )

    async def until_ready(self) -> None:
        """Wait until Envoy serves and the picker answers through it."""
        assert self.envoy is not None and self.picker is not None
        await self.picker.wait_ready(self._picker_listens, timeout_s=READY_S)
        await self.envoy.wait_ready(self._envoy_serves, timeout_s=READY_S)
        running = {server.address for server in self.servers if server.child is not None}
        await self.until(
            lambda status: all(
                status["endpoints"].get(address, {}).get("health") in ("ready", "degraded")
                for address in running
            )
        )

    async def _picker_listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.grpc_port)
        except OSError:
            return False
        writer.close()
        return True

    async def _envoy_serves(self) -> bool:
        if self.picker is not None and not self.picker.is_running:
            raise self.picker.exit_error()
        try:
            passing = await self.passing_in_envoy()
            wanted = {server.port for server in self.servers if server.child is not None}
            if not wanted <= passing:
                return False
            if not wanted:
                is_known = await cluster_probe(self.client, self._envoy_admin)()
                return is_known and ((await self.client.get(self.url("/slots"))).status_code == 403)
            answer = await self.client.post(self.url(CHAT), json=chat(1))
        except (httpx.TransportError, OSError):
            return False
        return answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers

    async def known_to_envoy(self) -> set[int]:
        """The ports of the servers that Envoy knows; raises what the connection raises."""
        return {port for port, _ in await self._hosts_of_envoy()}

    async def passing_in_envoy(self) -> set[int]:
        """Those of them that passed Envoy's last health check: what it may choose by itself. A
        server that was loading at the first check fails until the next."""
        failing = {"failed_active_health_check", "pending_active_hc"}
        return {port for port, health in await self._hosts_of_envoy() if not failing & health}

    async def _hosts_of_envoy(self) -> list[tuple[int, set[str]]]:
        """The port and the health flags that are set of each server that Envoy knows."""
        page = await self.client.get(f"{self._envoy_admin}/clusters?format=json")
        return [
            (host["address"]["socket_address"]["port_value"], set(host.get("health_status", {})))
            for cluster in page.json()["cluster_statuses"]
            if cluster["name"] == "llama"
            for host in cluster.get("host_statuses", [])
        ]

    @property
    def _envoy_admin(self) -> str:
        return f"http://127.0.0.1:{self.envoy_admin_port}"

    # Traffic

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.envoy_port}{path}"

    async def ask(
        self, max_tokens: int = 1, *, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """An ordinary answer, whole."""
        return await self.client.post(self.url(CHAT), json=chat(max_tokens), headers=headers)

    async def hold(self, *, headers: dict[str, str] | None = None) -> Held:
        """Start an answer that outlasts the test; returns at its first bytes."""
        exits = AsyncExitStack()
        response = await exits.enter_async_context(
            self.client.stream(
                "POST",
                self.url(CHAT),
                json=chat(CONTEXT_TOKENS - 200, stream=True),
                headers=headers,
            )
        )
        assert response.status_code == 200, response.headers
        held = Held(response, exits)
        self._held.append(held)
        await held.next_chunk()
        return held

    async def leave_all(self) -> None:
        """End every answer that is still held."""
        while self._held:
            await self._held.pop().leave()

    async def fill(self) -> list[Held]:
        """Occupy every slot of the fleet, one after another."""
        return [await self.hold() for server in self.servers for _ in range(server.slots)]

    # What can be seen

    def pids(self) -> list[int]:
        """The processes of all parts that run."""
        children = (self.picker, self.envoy, *(server.child for server in self.servers))
        return [child.pid for child in children if child is not None and child.is_running]

    async def busy(self) -> list[int]:
        """How many slots really work now, asked of the servers themselves."""
        return [await server.busy() for server in self.servers]

    async def status(self) -> dict[str, Any]:
        """The picker's own view, with the endpoints by address; raises what the connection
        raises."""
        answer = await self.client.get(f"http://127.0.0.1:{self.http_port}/status")
        snapshot: dict[str, Any] = answer.json()
        return snapshot | {"endpoints": {one["address"]: one for one in snapshot["endpoints"]}}

    async def slots(self) -> dict[str, dict[str, int]]:
        """The ledger's numbers by address."""
        endpoints = (await self.status())["endpoints"]
        return {address: endpoint["slots"] for address, endpoint in endpoints.items()}

    async def until(self, is_so: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the picker's view is so; fails with the last one after a minute."""
        seen: object = None

        async def sees() -> bool:
            nonlocal seen
            try:
                seen = status = await self.status()
            except (httpx.TransportError, ValueError) as error:
                seen = error
                return False
            return is_so(status)

        try:
            await until(sees)
        except TimeoutError:
            raise AssertionError(f"the picker's status never became so: {seen}") from None

    async def until_waiting(self, count: int) -> None:
        """Wait until so many requests stand in the queue."""
        await self.until(lambda status: status["queue"]["queued"] == count)

    async def until_foreign(self, server: Server, count: int) -> None:
        """Wait until the ledger knows of so many foreign requests on a server."""
        await self.until(
            lambda status: status["endpoints"][server.address]["slots"]["foreign"] == count
        )

    async def until_busy(self, wanted: list[int]) -> None:
        """Wait until the servers' own busy counts are `wanted`."""

        async def is_so() -> bool:
            return await self.busy() == wanted

        await until(is_so)

    # Violence

    async def kill(self, child: Child | None) -> None:
        """Until it is gone, its port answers nobody, though it may still take connections."""
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()

    def freeze(self, child: Child | None) -> None:
        assert child is not None
        os.kill(child.pid, signal.SIGSTOP)

    def terminate(self, child: Child | None) -> None:
        assert child is not None
        os.kill(child.pid, signal.SIGTERM)

    async def check_audit(self) -> None:
        """The auditor of a picker that still runs had nothing to correct."""
        await self.thaw()
        if self.picker is None or not self.picker.is_running:
            return
        try:
            answer = await self.client.get(f"http://127.0.0.1:{self.http_port}/metrics")
        except httpx.TransportError:
            return  # it is about to end
        lines = [one for one in answer.text.splitlines() if one.startswith(AUDIT)]
        assert lines, "the metric is told"
        assert all(float(one.rpartition(" ")[2]) == 0 for one in lines), lines

    async def thaw(self) -> None:
        for child in (self.picker, self.envoy, *(server.child for server in self.servers)):
            if child is not None and child.is_running:
                os.kill(child.pid, signal.SIGCONT)


async def until(is_so: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S) -> None:
    """Ask again and again until the answer is yes; raises TimeoutError after that time."""
    async with asyncio.timeout(timeout_s):
        while not await is_so():  # noqa: ASYNC110  # the condition lives in another process
            await asyncio.sleep(POLL_S)


def content_of(chunk: str) -> str:
    """What a `data:` line of a chat stream says; '' for the ends of streams."""
    data = chunk.removeprefix("data: ")
    if data == "[DONE]":
        return ""
    choices = json.loads(data).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
