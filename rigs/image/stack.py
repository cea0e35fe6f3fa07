"""The compose stack: started, scaled, drained and restarted under load, and watched."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from rigs.image.clients import clients
from rigs.image.engine import Docker, ImageTestError

ROOT: Final = Path(__file__).resolve().parents[2]
MODELS: Final = "http://127.0.0.1:10000/v1/models"
STATUS: Final = "http://127.0.0.1:9090/status"
QUERY: Final = "http://127.0.0.1:9091/api/v1/query"
WATCHED: Final = ("--profile", "observability")
PROFILES: Final = (*WATCHED, "--profile", "cluster")
MAPS: Final = "/proc/1/maps"
"""The files in the memory of a container's process."""
READY_TIMEOUT_S: Final = 120.0
MORE_THAN_SLOTS: Final = 14
FEWER_THAN_SLOTS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The stack of one engine. Each method is a step; it raises `ImageTestError` when it fails."""

    docker: Docker
    report: Callable[[str], None]

    async def up(self, count: int) -> None:
        """Start it with that many servers, as docs/operations.md says."""
        await self.compose("up", "--detach", "--scale", f"llama={count}")
        await self._until_ready(count)
        await self.until(lambda: is_served(MODELS), "Envoy does not serve")
        if "libjemalloc" not in await self.compose("exec", "-T", "coxswain", "cat", MAPS):
            raise ImageTestError("the picker runs without jemalloc")
        self.report(
            f"docker compose up --scale llama={count}: {count} endpoints are ready, "
            "and the picker runs with jemalloc"
        )

    async def scale_up(self, count: int) -> None:
        """Add servers while more requests come than there are slots."""
        async with clients(MORE_THAN_SLOTS) as load:
            await load.wait_served(2 * MORE_THAN_SLOTS)
            await self.compose("up", "--detach", "--no-recreate", "--scale", f"llama={count}")
            await self._until_ready(count)
            await load.wait_served(2 * MORE_THAN_SLOTS)
        self.check(load.failures, f"scaled to {count} under load: {load.served} served")

    async def drain(self, count: int) -> None:
        """Remove servers with the commands of docs/operations.md, under the same load."""
        commands = drain_commands()
        async with clients(MORE_THAN_SLOTS) as load:
            await load.wait_served(MORE_THAN_SLOTS)
            await asyncio.to_thread(self.docker.command, ["sh", "-ec", commands], cwd=ROOT)
            await self._until_ready(count)
            await load.wait_served(2 * MORE_THAN_SLOTS)
        self.check(load.failures, f"drained to {count} as documented: {load.served} served")

    async def restart_picker(self, count: int) -> None:
        """Restart the picker while requests run; Envoy serves them without it."""
        async with clients(FEWER_THAN_SLOTS) as load:
            await load.wait_served(FEWER_THAN_SLOTS)
            await self.compose("restart", "coxswain")
            await self._until_ready(count)
            await load.wait_served(2 * FEWER_THAN_SLOTS)
        done = f"restarted the picker under load: {load.served} served, {load.retries} retried"
        self.check(load.failures, done)

    async def watch(self, queries: Sequence[str]) -> None:
        """Check Prometheus' files with promtool, and let a real one scrape the picker."""
        for kind, file in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
            promtool = ("promtool", "prometheus", "check", kind, f"/etc/prometheus/{file}")
            await self.compose(*WATCHED, "run", "--rm", "--no-deps", "--entrypoint", *promtool)
        self.report("promtool check: the configuration and the rules are valid")
        await self.compose(*WATCHED, "up", "--detach", "prometheus")
        async with httpx.AsyncClient() as client:
            await self.until(lambda: _result(client, 'up{job="coxswain"} == 1'), "no scrape")
            await self.until(lambda: _result(client, "coxswain_slots"), "no slots")
            for query in queries:
                # Grafana puts a duration in place of its variable.
                plain = query.replace("$__rate_interval", "1m")
                answer = await client.get(QUERY, params={"query": plain})
                if answer.status_code != httpx.codes.OK:
                    raise ImageTestError(f"Prometheus rejects {query}: {answer.text}")
            firing = await _result(client, 'ALERTS{alertstate="firing"}')
        if firing:
            raise ImageTestError(f"alerts fire on a healthy stack: {firing}")
        self.report(f"Prometheus scrapes the picker and answers all {len(queries)} queries")

    async def end(self) -> None:
        """Stop everything; no part has logged a traceback, and the picker ended by itself."""
        await self.end_pickers("coxswain")
        self.report("stopped: the picker ended with 0, and no log has a traceback")

    async def end_pickers(self, *services: str) -> None:
        """Stop everything, and check what became of the pickers."""
        await self.compose(*PROFILES, "stop")
        logs = await self.compose(*PROFILES, "logs", "--no-color")
        if "Traceback" in logs:
            raise ImageTestError(logs[logs.index("Traceback") :][:4000])
        for service in services:
            state = ("inspect", "--format", "{{.State.ExitCode}}", f"coxswain-{service}-1")
            code = await asyncio.to_thread(self.docker.run, *state)
            if code != "0":
                raise ImageTestError(f"the container of {service} ended with {code}")

    async def logs(self) -> str:
        """What all containers have logged, and what became of them."""
        states = await self.compose(*PROFILES, "ps", "--all")
        return f"{states}\n{await self.compose(*PROFILES, 'logs', '--no-color', '--timestamps')}"

    async def remove(self) -> None:
        """Remove containers, networks and volumes."""
        await self.compose(*PROFILES, "down", "--volumes", "--timeout", "1")

    async def compose(self, *arguments: str) -> str:
        """The output of `docker compose` with these arguments."""
        return await asyncio.to_thread(self.docker.run, "compose", *arguments, cwd=ROOT)

    async def _until_ready(self, count: int) -> None:
        """Wait until there are `count` endpoints and all of them get requests."""

        async def is_ready() -> bool:
            async with httpx.AsyncClient() as client:
                status = (await client.get(STATUS)).json()
            endpoints = status["endpoints"]
            return [one["is_pickable"] for one in endpoints] == [True] * count

        await self.until(is_ready, f"there are not {count} ready endpoints")

    async def until(self, probe: Callable[[], Any], otherwise: str) -> None:
        """Wait until the probe is true; one that does not answer, or not yet, is not."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    try:
                        if await probe():
                            return
                    except httpx.HTTPError:
                        pass
                    await asyncio.sleep(0.2)
        except TimeoutError:
            logs = await self.compose("logs", "--no-color", "--tail", "20")
            raise ImageTestError(f"{otherwise} after {READY_TIMEOUT_S:g} s:\n{logs}") from None

    def check(self, failures: Sequence[str], done: str) -> None:
        """Report what was done, if nothing failed meanwhile."""
        if failures:
            some = "\n".join(dict.fromkeys(failures))
            raise ImageTestError(f"{done}, {len(failures)} failed:\n{some}")
        self.report(f"{done}, none failed")


def drain_commands() -> str:
    """The block of docs/operations.md that removes servers from the compose stack."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    (block,) = (block for block in blocks if "docker inspect" in block)
    return str(block)


async def is_served(url: str) -> bool:
    """Whether Envoy answers a GET of this URL with 200."""
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).status_code == httpx.codes.OK


async def _result(client: httpx.AsyncClient, query: str) -> list[Any]:
    answer = await client.get(QUERY, params={"query": query})
    found: list[Any] = answer.raise_for_status().json()["data"]["result"]
    return found
