"""One picker and the Envoy beside it: the only ones of a run, or those of a member of a cluster,
whose engine is here too."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import free_ports
from extproc.demo.process import Child
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import Mode, envoy_options
from extproc.settings import load_settings
from rigs.chaos.processes import family, listens
from rigs.picker_pages import Pages
from tests.fakes.valkey import PROGRAM

Start = Callable[[str, Sequence[str | Path]], Awaitable[Child]]
"""Starts a process of that name with that command."""
READY_S = 60.0
HOST = "127.0.0.1"
COMPLETIONS = "/v1/chat/completions"
SERVE = (sys.executable, "-m", "rigs.chaos.launch", "serve", "--config")
QUIET_LOG_MS = 100
"""How late a line of Envoy's access log may be."""


class Engine:
    """A real Valkey or Redis without persistence: it forgets when it ends."""

    def __init__(self, folder: Path, start: Start) -> None:
        [self._port] = free_ports(1)
        self._folder = folder
        self._start = start
        self.child: Child | None = None

    @property
    def url(self) -> str:
        """What members name it by."""
        return f"redis://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start it, empty, and wait until it accepts connections."""
        assert PROGRAM is not None, "the caller has checked that there is one"
        self.child = await self._start(
            "engine",
            [
                *(PROGRAM, "--port", str(self._port), "--bind", HOST, "--save", ""),
                *("--appendonly", "no", "--dir", self._folder),
            ],
        )
        await self.child.wait_ready(partial(listens, self._port), timeout_s=READY_S)


class Member:
    """`headers` are those of our own requests through Envoy."""

    def __init__(
        self,
        name: str,
        folder: Path,
        http: httpx.AsyncClient,
        start: Start,
        headers: dict[str, str],
    ) -> None:
        self.name = name
        ports = free_ports(6)
        self.envoy_port, self.envoy_admin, self.grpc, self.admin, self.http, self.peers = ports
        self.pages = Pages(http, self.http)
        self.picker: Child | None = None
        self.envoy: Child | None = None
        self.picker_logs: list[Path] = []
        self.envoy_logs: list[Path] = []
        self._config = folder / f"coxswain{name}.yaml"
        self._envoy_config = folder / f"envoy{name}.yaml"
        self._http = http
        self._start = start
        self._headers = headers

    def settings(self, *layers: dict[str, Any]) -> None:
        """Write its settings: its own addresses, and these, of which later ones win in each
        section."""
        values: dict[str, Any] = {
            "listen": {
                "grpc": f"{HOST}:{self.grpc}",
                "admin": f"{HOST}:{self.admin}",
                "http": f"{HOST}:{self.http}",
            },
            "envoy": {
                "listen": f"{HOST}:{self.envoy_port}",
                "admin": f"{HOST}:{self.envoy_admin}",
            },
        }
        for layer in layers:
            for key, value in layer.items():
                is_section = isinstance(value, dict)
                values[key] = {**values.get(key, {}), **value} if is_section else value
        self._config.write_text(yaml.safe_dump(values))

    @property
    def is_running(self) -> bool:
        return self.picker is not None and self.picker.is_running

    async def start_picker(self) -> None:
        """Start it with the settings that were written, and wait until it answers."""
        self.picker = await self._start("picker" + self.name, [*SERVE, self._config])
        self.picker_logs.append(self.picker.log)
        await self.picker.wait_ready(self._picker_is_up, timeout_s=READY_S)

    async def start_envoy(self, mode: str) -> None:
        """Start Envoy with the configuration of these settings, and wait until requests go through
        it by way of a picker."""
        options = envoy_options(load_settings(self._config, environ={}))
        self._envoy_config.write_text(bootstrap(replace(options, mode=Mode(mode))))
        self._envoy_config.chmod(0o600)
        self.envoy = await self._start(
            "envoy" + self.name,
            [
                *(find_envoy(), "-c", self._envoy_config, "--concurrency", "1"),
                *("--use-dynamic-base-id", "--log-level", "warning"),
                *("--file-flush-interval-msec", str(QUIET_LOG_MS)),
                *("--drain-time-s", "1", "--parent-shutdown-time-s", "2"),
            ],
        )
        self.envoy_logs.append(self.envoy.log)
        await self.envoy.wait_ready(self._envoy_is_up, timeout_s=READY_S)

    async def stop(self) -> None:
        """End both in peace, so that their logs are complete."""
        for child in (self.envoy, self.picker):
            if child is not None:
                await child.stop()

    def processes(self) -> dict[int, str]:
        """Those of the picker by id: "supervisor", "core" (which may be a spare) and "front"."""
        if self.picker is None or not self.picker.is_running:
            return {}
        return {self.picker.pid: "supervisor", **family(self.picker.pid)}

    def strike(self, number: signal.Signals) -> None:
        """As if it happened to the machine: every process of the picker at once."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    # What can be seen

    async def envoy_stats(self) -> dict[str, int]:
        answer = await self._http.get(f"http://{HOST}:{self.envoy_admin}/stats?usedonly")
        pairs = (line.split(": ") for line in answer.text.splitlines() if ": " in line)
        return {name: int(value) for name, value in pairs if value.isdigit()}

    async def _picker_is_up(self) -> bool:
        try:
            return bool((await self.pages.status())["endpoints"])
        except (httpx.HTTPError, ValueError):
            return False

    async def _envoy_is_up(self) -> bool:
        try:
            answer = await self._http.post(
                f"http://{HOST}:{self.envoy_port}{COMPLETIONS}",
                json={"messages": [{"role": "user", "content": "ready"}], "max_tokens": 1},
                headers=self._headers,
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers
