"""A machine that sleeps: a request wakes it by a magic packet, idleness puts it to sleep again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.port import free_ports
from tests.e2e.stack import Server, Stack, until

pytestmark = pytest.mark.e2e

MAC = "02:00:5e:10:20:3a"
MAGIC = b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) * 16


class Machine:
    """Stands for a computer: its network card hears broadcasts, and a magic packet starts its
    server, as soon as `may_boot`. Its `power_off` is a program."""

    def __init__(self, stack: Stack, server: Server, pid_file: Path) -> None:
        self.may_boot = asyncio.Event()
        self._stack = stack
        self._server = server
        self._pid_file = pid_file

    async def run(self, card: socket.socket) -> None:
        """Sleep and wake until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if await loop.sock_recv(card, 1024) != MAGIC:
                continue
            if self._server.child is None or not self._server.child.is_running:
                await self.may_boot.wait()
                await self._stack.start_server(self._server)
                assert self._server.child is not None
                self._pid_file.write_text(str(self._server.child.pid))


async def test_requests_wake_a_machine_and_idleness_puts_it_to_sleep(tmp_path: Path) -> None:
    """They wait meanwhile, and can see for what; from the second time on, for how long."""
    (port,) = free_ports(1)
    pid_file = tmp_path / "pid"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.setblocking(False)
        card.bind(("127.255.255.255", 0))
        wake = {
            "mac": MAC.upper(),
            "broadcast": f"127.255.255.255:{card.getsockname()[1]}",
            "after_idle_s": 1,
            "sleep_command": ["sh", "-c", f"kill $(cat {pid_file})"],
        }
        endpoint = {"address": f"127.0.0.1:{port}", "name": "gpu-2", "wake": wake}
        settings = {"endpoints": [endpoint], "scraper": {"slow_interval_s": 0.5}}
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            server = await stack.add_server(2, kind="simulator", port=port, start=False)
            machine = Machine(stack, server, pid_file)
            living = asyncio.create_task(machine.run(card))
            try:
                await until_off(stack)
                await wakes_for(stack, machine, "first", "waits for gpu-2 to wake")
                await until_off(stack)
                await wakes_for(stack, machine, "second", "waits for gpu-2 to wake, about ")
                await until(lambda: has_happened(stack, "machine-woken", 2))
                kinds = await events(stack)
                assert kinds.count("machine-waking") == 2
                assert "machine-asleep" in kinds and "issue" not in kinds
            finally:
                living.cancel()
                await asyncio.wait({living})


async def test_a_core_that_takes_over_wakes_the_machine_for_those_who_wait(
    tmp_path: Path,
) -> None:
    """The core before was killed when its packets had begun."""
    (port,) = free_ports(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.setblocking(False)
        card.bind(("127.255.255.255", 0))
        wake = {"mac": MAC, "broadcast": f"127.255.255.255:{card.getsockname()[1]}"}
        endpoint = {"address": f"127.0.0.1:{port}", "name": "gpu-2", "wake": wake}
        settings = {"endpoints": [endpoint], "fronts": 2, "scraper": {"slow_interval_s": 0.5}}
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            server = await stack.add_server(2, kind="simulator", port=port, start=False)
            await until_off(stack)
            call = asyncio.create_task(stack.ask())
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(card, 1024) == MAGIC
            members = (await stack.status())["processes"]["members"]
            (core,) = (member["pid"] for member in members if member["role"] == "core")
            os.kill(core, signal.SIGKILL)
            await stack.until(lambda status: is_led_by_another(status, core))
            drained(card)
            machine = Machine(stack, server, tmp_path / "pid")
            machine.may_boot.set()
            living = asyncio.create_task(machine.run(card))
            try:
                answer = await call
            finally:
                living.cancel()
                await asyncio.wait({living})
            assert answer.headers["x-coxswain-endpoint"] == "gpu-2"
            assert (await events(stack)).count("machine-waking") == 1, "of the new core"


def is_led_by_another(status: dict[str, Any], core: int) -> bool:
    members = (status.get("processes") or {}).get("members", [])
    return any(one["role"] == "core" and one["pid"] != core for one in members)


def drained(card: socket.socket) -> None:
    """Forget what has come."""
    with suppress(BlockingIOError):
        while card.recv(1024):
            pass


async def test_a_server_that_crashes_on_its_machine_is_down(tmp_path: Path) -> None:
    """Nobody put the machine to sleep, and it refuses connections: it is on."""
    wake = {"mac": MAC, "broadcast": "127.255.255.255", "timeout_s": 1}
    (port,) = free_ports(1)
    settings = {
        "scraper": {"slow_interval_s": 0.2},
        "endpoints": [{"address": f"127.0.0.1:{port}", "name": "gpu-2", "wake": wake}],
    }
    async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
        server = await stack.add_server(2, kind="simulator", port=port)
        await stack.until(lambda status: is_seen(status, "ready"))
        await stack.kill(server.child)
        await stack.until(lambda status: is_seen(status, "down", "does-not-serve"))
        assert (await stack.status())["not_ready"]
        await stack.start_server(server)
        await stack.until(lambda status: is_seen(status, "ready"))
        assert (await stack.ask()).status_code == 200


def is_seen(status: dict[str, Any], health: str, *issues: str) -> bool:
    """Whether the only endpoint is in this state, with these issues at least, or none."""
    (seen,) = status["endpoints"].values()
    codes = {issue["code"] for issue in seen["issues"]}
    return seen["health"] == health and set(issues) <= codes and bool(issues) == bool(codes)


async def until_off(stack: Stack) -> None:
    """Its machine is off, and the picker well."""
    await stack.until(
        lambda status: [one["health"] for one in status["endpoints"].values()] == ["off"]
    )
    status = await stack.status()
    assert status["not_ready"] == status["problems"] == []
    assert [one["issues"] for one in status["endpoints"].values()] == [[]]


async def wakes_for(stack: Stack, machine: Machine, id_: str, note: str) -> None:
    """A request waits, with that beginning of a note, until the machine may boot, and is served."""
    machine.may_boot.clear()
    call = asyncio.create_task(stack.ask(headers={"x-request-id": id_}))
    seen: list[str] = []

    async def is_noted() -> bool:
        answer = await stack.client.get(stack.url(f"/queue/{id_}"))
        seen.append(answer.json().get("note", "") if answer.status_code == 200 else "")
        return seen[-1].startswith(note)

    try:
        await until(is_noted)
    except TimeoutError:
        raise AssertionError(f"the note never began with {note!r}: {set(seen)}") from None
    machine.may_boot.set()
    answer: httpx.Response = await call
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-coxswain-endpoint"] == "gpu-2"


async def has_happened(stack: Stack, kind: str, times: int) -> bool:
    return (await events(stack)).count(kind) == times


async def events(stack: Stack) -> list[str]:
    """The kinds of what happened, newest first."""
    page = await stack.client.get(f"http://127.0.0.1:{stack.http_port}/activity")
    return [event["kind"] for event in page.json()["events"]]
