"""A picker within the test and the real Envoy that its settings print, before stand-in servers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from extproc.app.service import Service
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.health import SERVING
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import free_port
from extproc.envoy_config.options import EnvoyOptions, envoy_options
from extproc.settings import Settings
from tests.fakes import envoy_text
from tests.fakes.authority import Pair
from tests.fakes.http_client import Client
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until

FREE = "127.0.0.1:0"


@dataclass
class Running:
    """A picker, its Envoy, and a client of that Envoy."""

    service: Service
    client: httpx.AsyncClient
    settings: Settings
    """What the picker reads at a reload; a test may replace them."""

    def endpoint(self, address: Address) -> Endpoint:
        """What the picker knows of it now."""
        found = self.service.dispatcher.fleet.get(address)
        assert found is not None
        return found

    async def until_seen(self, address: Address) -> None:
        """Wait until the picker looked at it and found it well."""
        fleet = self.service.dispatcher.fleet
        await until(lambda: address in fleet and self.endpoint(address).health in SERVING)

    async def until_gone(self, address: Address) -> None:
        await until(lambda: address not in self.service.dispatcher.fleet)

    async def statistic(self, name: str) -> int:
        """One of Envoy's counters about the llama-servers."""
        answer = await self.client.get(f"http://{self.settings.envoy.admin}/stats")
        lines = dict(line.split(": ", 1) for line in answer.text.splitlines() if ": " in line)
        return int(lines[f"cluster.llama.{name}"])

    async def hosts(self) -> str:
        """The llama-servers that Envoy knows, as its admin page tells them."""
        answer = await self.client.get(f"http://{self.settings.envoy.admin}/clusters")
        lines = [line for line in answer.text.splitlines() if line.startswith("llama::")]
        return "\n".join(lines)


@asynccontextmanager
async def running(
    folder: Path,
    values: dict[str, Any],
    is_steered: bool = True,
    is_printed_whole: bool = False,
    printed: Callable[[EnvoyOptions], str] = envoy_text.printed,
) -> AsyncIterator[Running]:
    """Both up, and at least one server seen well; `is_steered` waits for it through Envoy too.

    `is_printed_whole`: the servers' cluster is in Envoy's file, not served by the picker.
    `printed` makes Envoy's file.
    """
    listen = {"grpc": f"127.0.0.1:{free_port()}", "admin": FREE, "http": FREE}
    envoy: dict[str, Any] = {
        "listen": f"127.0.0.1:{free_port()}",
        "admin": f"127.0.0.1:{free_port()}",
    }
    values = dict(values)
    envoy |= {"countdown": False, "message_timeout_s": PATIENCE_S, **values.pop("envoy", {})}
    settings = Settings.model_validate(
        {"listen": listen, "envoy": envoy, "drain_timeout_s": 0, **values}
    )
    file = folder / "envoy.yaml"
    options = replace(envoy_options(settings), serves_cluster=not is_printed_whole)
    file.write_text(printed(options), encoding="utf-8")
    service = Service(settings, lambda: stack.settings)
    await service.start()
    command = [find_envoy(), "-c", file, "--concurrency", "1", "--use-dynamic-base-id"]
    process = await asyncio.create_subprocess_exec(*map(str, command), "-l", "warning")
    try:
        base_url = f"http://{settings.envoy.listen}"
        async with Client(base_url=base_url, timeout=PATIENCE_S) as client:
            stack = Running(service, client, settings)
            if is_steered:
                fleet = service.dispatcher.fleet
                await until(lambda: any(each.health in SERVING for each in fleet))
                # The picker may answer for the health of its servers itself.
                await _until_steered(client, "/props" if settings.envoy.health else "/health")
            yield stack
    finally:
        process.terminate()
        await process.wait()
        await service.stop()


async def _until_steered(client: httpx.AsyncClient, path: str) -> None:
    """Envoy listens, and its picker has told it the fleet."""
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await client.get(path, headers={"authorization": "Bearer sk-web"})
            except httpx.TransportError:
                answer = None
            if answer is not None and "x-coxswain-endpoint" in answer.headers:
                return
            await asyncio.sleep(0.05)


def server_side(pair: Pair) -> ssl.SSLContext:
    """How a server shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    return context
