"""A real Envoy on free ports, for one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Child
from extproc.envoy_config.options import EnvoyOptions, HostPort
from tests.fakes.envoy_text import options_with, printed

START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEnvoy:
    """Where it listens, and its process."""

    port: int
    admin_port: int
    child: Child

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://{LOOPBACK}:{self.admin_port}"


@asynccontextmanager
async def running_envoy(
    options: EnvoyOptions, folder: Path, text: str | None = None
) -> AsyncIterator[RunningEnvoy]:
    """Run Envoy with these options on free ports, or with a `text` that has its own."""
    if text is None:
        port, admin_port = free_ports(2)
        options = options_with(
            options, listen=f"{LOOPBACK}:{port}", admin=f"{LOOPBACK}:{admin_port}"
        )
        text = printed(replace(options, serves_cluster=False))
    config = folder / "envoy.yaml"
    config.write_text(text, encoding="utf-8")
    flags = ("--use-dynamic-base-id", "--concurrency", "1", "-l", "warning")
    child = await Child.start(
        "envoy", [find_envoy(), "-c", config, *flags], log=folder / "envoy.log"
    )
    envoy = RunningEnvoy(
        port=HostPort.parse(options.envoy.listen).port,
        admin_port=HostPort.parse(options.envoy.admin).port,
        child=child,
    )
    try:
        async with httpx.AsyncClient() as client:

            async def is_ready() -> bool:
                try:
                    return (await client.get(f"{envoy.admin_url}/ready")).text.strip() == "LIVE"
                except httpx.TransportError:
                    return False

            await child.wait_ready(is_ready, timeout_s=START_TIMEOUT_S)
        yield envoy
    finally:
        await child.stop()
