"""Plays one cell through one rival: a fleet of its own, the rival, the clients, and the account."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from bench.compare.account import Result, account, count_deferred
from bench.compare.cells import Server
from bench.compare.clients import KEY_HEADER, PATH, Record
from bench.compare.rivals import Rival
from bench.compare.trace import LONGEST_PROMPT_TOKENS, MODEL, Pace, Request
from bench.process import session_cpu_seconds
from bench.rig import Rig
from extproc.demo.fleet import health_probe, server_environment
from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.own_module import own_module
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Child, until

CONTEXT_TOKENS: Final = LONGEST_PROMPT_TOKENS + 2_048
"""Of each slot, unless slots share one."""
KEPT_PROMPTS: Final = 32
"""Of each server, outside its slots: what llama-server's 8 GiB hold of a model of eight billion
parameters, with prompts of 2,000 tokens."""
LEAD_S: Final = 1.5
"""From the start of the clients' process to their first request."""
PATIENCE_S: Final = 15.0
"""How long clients wait after the last request was sent, and another time the length of the run."""
READY_S: Final = 60.0
REAL_LOG: Final = ("--log-verbosity", "5")
"""Where llama-server says that a request waits in it."""


class Stage:
    """What all runs of a cell share: its requests in a file, the pace, the fleet."""

    def __init__(
        self,
        fleet: Sequence[Server],
        requests: Sequence[Request],
        pace: Pace,
        *,
        dies: bool = False,
        is_real: bool = False,
    ) -> None:
        self.fleet = fleet
        self.requests = requests
        self.pace = pace
        self.dies = dies
        self.is_real = is_real

    @property
    def seconds(self) -> float:
        """Until the last request."""
        return self.requests[-1].at_s

    async def play(self, rival: Rival) -> tuple[list[Record], Result]:
        """Start everything, send everything, stop everything. Raises `ChildError` if a part does
        not start."""
        async with Rig() as rig, httpx.AsyncClient(trust_env=False) as http:
            ports = await self._start_fleet(rig, http)
            servers = dict(zip(ports, self.fleet, strict=True))
            proxy = await rival.start(rig, servers)
            await _warm_up(http, proxy.port, len(servers))
            results = rig.folder / "results.json"
            begins_at = time.monotonic() + LEAD_S
            clients = await self._start_clients(rig, proxy.port, begins_at, results)
            before_s = _cpu_seconds(proxy.children)
            killing = asyncio.create_task(self._kill_one(ports, begins_at))
            try:
                status = await clients.wait()
            finally:
                killing.cancel()
                with suppress(asyncio.CancelledError):
                    await killing
            if status:
                raise clients.exit_error()
            cpu_s = _cpu_seconds(proxy.children) - before_s
            records = [Record(**one) for one in json.loads(results.read_text())]
            logs = [rig.folder / f"server-{port}.log" for port in ports]
            to_full = sum(map(_count_deferred, logs))
        result = account(rival.name, records, to_full=to_full, cpu_s=cpu_s, is_ours=rival.is_ours)
        return records, result

    async def _start_fleet(self, rig: Rig, http: httpx.AsyncClient) -> list[int]:
        ports = free_ports(len(self.fleet))
        model = rig.folder / "model.gguf"
        if self.is_real:
            write_model(model, ModelShape(context_tokens=CONTEXT_TOKENS))
        self._children = {}
        for port, server in zip(ports, self.fleet, strict=True):
            command = (
                self._real(model, port, server) if self.is_real else self._simulator(port, server)
            )
            child = await rig.start(f"server-{port}", command, environment=server_environment())
            self._children[port] = child
        for port, child in self._children.items():
            probe = health_probe(http, f"http://{LOOPBACK}:{port}/health")
            await child.wait_ready(probe, timeout_s=READY_S)
        return ports

    def _simulator(self, port: int, server: Server) -> list[str]:
        shared = server.shared_tokens
        return [
            *own_module("extproc.demo.simulator"),
            *("--port", str(port), "--slots", str(server.slots), "--alias", MODEL),
            *("--context-tokens", str(shared or CONTEXT_TOKENS)),
            *(("--shared-context",) if shared else ()),
            *("--tokens-per-second", str(self.pace.events_s / server.slowness)),
            "--prompt-tokens-per-second",
            str(self.pace.prefill_tokens_s / server.slowness),
            *("--kept-prompts", str(KEPT_PROMPTS), "--log-deferred", "--metrics"),
        ]

    def _real(self, model: Path, port: int, server: Server) -> list[str]:
        binary = find_llama_server()
        assert binary is not None, "the caller has checked that there is one"
        context = server.shared_tokens or server.slots * CONTEXT_TOKENS
        slots = () if server.shared_tokens else ("--parallel", str(server.slots))
        return [
            *(str(binary), "--model", str(model), "--port", str(port), *slots, "--alias", MODEL),
            *("--ctx-size", str(context), "--threads", "1", "--no-webui", "--metrics", *REAL_LOG),
        ]

    async def _start_clients(self, rig: Rig, port: int, begins_at: float, results: Path) -> Child:
        plan = rig.folder / "requests.json"
        plan.write_text(json.dumps(self.requests))
        arguments = {
            "requests": str(plan),
            "port": port,
            "begins_at": begins_at,
            "patience_s": PATIENCE_S + self.seconds,
            "results": str(results),
        }
        command = [sys.executable, "-m", "bench.compare.clients", json.dumps(arguments)]
        return await rig.start("clients", command)

    async def _kill_one(self, ports: Sequence[int], begins_at: float) -> None:
        if self.dies:
            await asyncio.sleep(begins_at + self.seconds / 2 - time.monotonic())
            self._children[ports[0]].kill()


async def _warm_up(http: httpx.AsyncClient, port: int, servers: int) -> None:
    """Wait until requests are served: a rival may listen before it knows its servers."""

    async def is_served() -> bool:
        message = {"role": "user", "content": "row"}
        body = {"model": MODEL, "messages": [message], "max_tokens": 1}
        try:
            answer = await http.post(
                f"http://{LOOPBACK}:{port}{PATH}", json=body, headers={KEY_HEADER: "warm-up"}
            )
        except httpx.TransportError:
            return False
        return answer.is_success

    async with asyncio.timeout(READY_S):
        for _ in range(2 * servers):
            await until(is_served)


def _cpu_seconds(children: Sequence[Child]) -> float:
    return sum(session_cpu_seconds(child.pid) for child in children)


def _count_deferred(log: Path) -> int:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return count_deferred(lines)
