"""A machine that sleeps: a request wakes it by a magic packet, idleness puts it to sleep again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.port import free_ports
from extproc.demo.process import Child
from tests.e2e.kept import kept
from tests.e2e.stack import CHAT, Server, Stack, chat, until
from tests.fakes.networks import MISSING, InNamespace, Networks, inside, is_possible

pytestmark = pytest.mark.e2e

NO_HEADERS: Mapping[str, str] = {}
MAC = "02:00:5e:10:20:3a"
MAGIC = b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) * 16


class Machine:
    """Stands for a computer: its network card hears broadcasts, and a magic packet starts its
    `boot`, a process, as soon as `may_boot`. A program ends what `pid_file` names."""

    def __init__(self, stack: Stack, pid_file: Path, boot: Callable[[], Awaitable[Child]]) -> None:
        self.stack = stack
        self.may_boot = asyncio.Event()
        self.child: Child | None = None
        self.is_suspended = False
        """Its processes are only stopped while it sleeps."""
        self._pid_file = pid_file
        self._boot = boot

    async def run(self, card: socket.socket) -> None:
        """Sleep and wake until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if await loop.sock_recv(card, 1024) != MAGIC:
                continue
            if self.is_suspended or self.child is None or not self.child.is_running:
                await self.may_boot.wait()
                await self.boot()

    async def boot(self) -> None:
        self.child = await self._boot()
        if not self.is_suspended:
            self._pid_file.write_text(str(self.child.pid))


def booting(stack: Stack, server: Server) -> Callable[[], Awaitable[Child]]:
    """The start of a machine with that server."""

    async def boot() -> Child:
        await stack.start_server(server)
        assert server.child is not None
        return server.child

    return boot


@contextmanager
def network_card() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.setblocking(False)
        card.bind(("127.255.255.255", 0))
        yield card


def wake_of(card: socket.socket, pid_file: Path) -> dict[str, object]:
    """What the settings say of a machine with that network card."""
    return {
        "mac": MAC.upper(),
        "broadcast": f"127.255.255.255:{card.getsockname()[1]}",
        "after_idle_s": 1,
        "sleep_command": ["sh", "-c", f"kill $(cat {pid_file})"],
    }


async def test_requests_wake_a_machine_and_idleness_puts_it_to_sleep(tmp_path: Path) -> None:
    """They wait meanwhile, and can see for what; from the second time on, for how long."""
    (port,) = free_ports(1)
    pid_file = tmp_path / "pid"
    with network_card() as card:
        endpoint = {
            "address": f"127.0.0.1:{port}",
            "name": "gpu-2",
            "wake": wake_of(card, pid_file),
        }
        settings = {"endpoints": [endpoint], "scraper": {"slow_interval_s": 0.5}}
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            server = await stack.add_server(2, kind="simulator", port=port, start=False)
            machine = Machine(stack, pid_file, booting(stack, server))
            living = asyncio.create_task(machine.run(card))
            try:
                await until_off(stack)
                await wakes_for(machine, "first", "waits for gpu-2 to wake")
                await until_off(stack)
                await wakes_for(machine, "second", "waits for gpu-2 to wake, about ")
                await until(lambda: has_happened(stack, "machine-woken", 2))
                kinds = await events(stack)
                assert kinds.count("machine-waking") == 2
                assert "machine-asleep" in kinds and "issue" not in kinds
            finally:
                living.cancel()
                await asyncio.wait({living})


async def test_requests_for_a_pool_wake_its_machine(tmp_path: Path) -> None:
    """Although a server of another pool is awake and idle, whose requests wake none."""
    ports = free_ports(2)
    pid_file = tmp_path / "pid"
    with network_card() as card:
        pools = {
            "chat": {"default": True},
            "batch": {"header": {"name": "x-team", "value": "batch"}},
        }
        endpoints = [
            {"address": f"127.0.0.1:{ports[0]}", "name": "gpu-1", "in_pool": "chat"},
            {
                "address": f"127.0.0.1:{ports[1]}",
                "name": "gpu-2",
                "in_pool": "batch",
                "wake": wake_of(card, pid_file),
            },
        ]
        settings = {
            "pools": pools,
            "endpoints": endpoints,
            "scraper": {"slow_interval_s": 0.5},
        }
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            await stack.add_server(2, kind="simulator", port=ports[0])
            server = await stack.add_server(2, kind="simulator", port=ports[1], start=False)
            machine = Machine(stack, pid_file, booting(stack, server))
            living = asyncio.create_task(machine.run(card))
            try:
                await stack.until(lambda status: healths(status) == ["ready", "off"])
                assert (await stack.ask()).headers["x-coxswain-endpoint"] == "gpu-1"
                batch = {"x-team": "batch"}
                await wakes_for(machine, "first", "waits for gpu-2 to wake", headers=batch)
                await stack.until(lambda status: healths(status) == ["ready", "off"])
                assert (await events(stack)).count("machine-waking") == 1
            finally:
                living.cancel()
                await asyncio.wait({living})


def healths(status: dict[str, Any]) -> list[str]:
    """The states of the endpoints, in the order of their names."""
    found = sorted(status["endpoints"].values(), key=lambda one: one["name"])
    return [one["health"] for one in found]


@pytest.mark.skipif(not is_possible(), reason=MISSING)
async def test_a_machine_with_a_network_of_its_own_wakes_and_sleeps(tmp_path: Path) -> None:
    """A namespace stands for it. While it sleeps nothing there answers, and its network card hears
    what is broadcast in its network, at the port for magic packets."""
    (port,) = free_ports(1)
    pid_file = tmp_path / "pid"
    async with Networks() as networks:
        await networks.add("gpu")
        await networks.link("hub", "gpu", 1)
        await networks.cut("hub", "gpu")
        host, there = networks.address("gpu", by="hub"), networks.pid("gpu")
        children = InNamespace(tmp_path, there)
        with inside(there):
            card = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with closing(card):
            card.setblocking(False)
            card.bind(("", 9))
            wake = {
                "mac": MAC,
                "broadcast": "10.77.1.3",
                "after_idle_s": 1,
                "sleep_command": ["sh", "-c", f"kill $(cat {pid_file})"],
            }
            settings = {
                "endpoints": [{"address": f"{host}:{port}", "name": "gpu-2", "wake": wake}],
                "scraper": {"slow_interval_s": 0.5, "connect_timeout_s": 1.0},
            }
            async with (
                Stack.running(tmp_path, slots=(), settings=settings) as stack,
                children,
            ):
                server = await stack.add_server(
                    2, kind="simulator", port=port, host=host, start=False
                )

                async def boot() -> Child:
                    await networks.heal("hub", "gpu")
                    child = await children.start("server", server.command)
                    await child.wait_ready(server.is_ready, timeout_s=60)
                    return child

                async def fall_silent() -> None:
                    """Its network card alone is on once its processes have ended."""
                    while True:
                        await until(has_ended)
                        machine.child = None
                        await networks.cut("hub", "gpu")

                async def has_ended() -> bool:
                    return machine.child is not None and not machine.child.is_running

                machine = Machine(stack, pid_file, boot)
                living = [asyncio.create_task(each) for each in (machine.run(card), fall_silent())]
                try:
                    await until_off(stack)
                    await wakes_for(machine, "first", "waits for gpu-2 to wake")
                    await until_off(stack)
                    await wakes_for(machine, "second", "waits for gpu-2 to wake, about ")
                    assert "issue" not in await events(stack)
                finally:
                    for each in living:
                        each.cancel()
                    await asyncio.wait(living)


@pytest.mark.llama
async def test_requests_wake_the_machine_of_a_keeper_which_loads_their_model(
    llama: None, tmp_path: Path
) -> None:
    """A picker that has started since does not know the machine's models, and wakes it all the
    same; from then on only for those."""
    pid_file = tmp_path / "pid"
    with network_card() as card:
        settings = {"machines": {"gpu-1": {"wake": wake_of(card, pid_file)}}}
        async with kept(
            tmp_path, {"small": {}, "medium": {}}, 10, settings, is_started=False
        ) as fleet:
            machine = Machine(fleet.stack, pid_file, fleet.start_keeper)
            living = asyncio.create_task(machine.run(card))
            try:
                for number, model in enumerate(("small", "medium", "small")):
                    await until_powers(fleet.stack, "off")
                    name = f"gpu-1.{model}"
                    await wakes_for(machine, str(number), "waits for gpu-1 to wake", model, name)
                await until_powers(fleet.stack, "off")
                assert not any(map(fleet.pids, ("small", "medium")))
                kinds = await events(fleet.stack)
                assert kinds.count("machine-waking") == 3
                assert "issue" not in kinds and "down" not in kinds
            finally:
                living.cancel()
                await asyncio.wait({living})


@pytest.mark.llama
async def test_a_suspended_machine_wakes_with_its_model_loaded(llama: None, tmp_path: Path) -> None:
    """Its connections are not closed when it falls asleep, and its server goes on afterwards."""
    pid_file = tmp_path / "pid"
    with network_card() as card:
        wake = wake_of(card, pid_file)
        wake["sleep_command"] = ["sh", "-c", f"kill -STOP $(cat {pid_file})"]
        settings = {"machines": {"gpu-1": {"wake": wake}}}
        async with kept(tmp_path, {"small": {}}, 10, settings) as fleet:
            assert fleet.keeper is not None
            keeper = fleet.keeper

            async def resume() -> Child:
                for pid in map(int, pid_file.read_text().split()):
                    os.kill(pid, signal.SIGCONT)
                return keeper

            machine = Machine(fleet.stack, pid_file, resume)
            machine.is_suspended = True
            living = asyncio.create_task(machine.run(card))
            try:
                fleet.check("small", await fleet.ask("small"))
                server = fleet.pids("small")
                pid_file.write_text(" ".join(map(str, (keeper.pid, *server))))
                await until_powers(fleet.stack, "off")
                await wakes_for(machine, "one", "waits for gpu-1 to wake", "small", "gpu-1.small")
                assert fleet.pids("small") == server
            finally:
                living.cancel()
                await asyncio.wait({living})
                await resume()


async def test_a_core_that_takes_over_wakes_the_machine_for_those_who_wait(
    tmp_path: Path,
) -> None:
    """The core before was killed when its packets had begun."""
    (port,) = free_ports(1)
    with network_card() as card:
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
            machine = Machine(stack, tmp_path / "pid", booting(stack, server))
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


async def until_powers(stack: Stack, *powers: str) -> None:
    """The machines with a keeper are so, and the picker is well."""
    await stack.until(
        lambda status: [one["power"] for one in status.get("machines", ())] == [*powers]
    )
    status = await stack.status()
    assert status["not_ready"] == status["problems"] == []


async def until_off(stack: Stack) -> None:
    """Its machine is off, and the picker well."""
    await stack.until(
        lambda status: [one["health"] for one in status["endpoints"].values()] == ["off"]
    )
    status = await stack.status()
    assert status["not_ready"] == status["problems"] == []
    assert [one["issues"] for one in status["endpoints"].values()] == [[]]


async def wakes_for(
    machine: Machine,
    id_: str,
    note: str,
    model: str = "",
    endpoint: str = "gpu-2",
    headers: Mapping[str, str] = NO_HEADERS,
) -> None:
    """A request waits, with that beginning of a note, until the machine may boot, and is served."""
    stack = machine.stack
    machine.may_boot.clear()
    body = {**chat(4), **({"model": model} if model else {})}
    call = asyncio.create_task(
        stack.client.post(stack.url(CHAT), json=body, headers={**headers, "x-request-id": id_})
    )
    seen: list[str] = []

    async def is_noted() -> bool:
        answer = await stack.client.get(stack.url(f"/queue/{id_}"))
        seen.append(answer.json().get("note", "") if answer.status_code == 200 else "")
        return seen[-1].startswith(note)

    try:
        await until(is_noted)
    except TimeoutError:
        raise AssertionError(f"the note never began with {note!r}: {set(seen)}") from None
    endpoints = (await stack.status())["endpoints"].values()
    assert all(one["is_waking"] for one in endpoints if one["health"] == "off")
    machine.may_boot.set()
    answer: httpx.Response = await call
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-coxswain-endpoint"] == endpoint


async def has_happened(stack: Stack, kind: str, times: int) -> bool:
    return (await events(stack)).count(kind) == times


async def events(stack: Stack) -> list[str]:
    """The kinds of what happened, newest first."""
    page = await stack.client.get(f"http://127.0.0.1:{stack.http_port}/activity")
    return [event["kind"] for event in page.json()["events"]]
