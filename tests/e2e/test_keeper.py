"""A keeper with real llama-servers behind a real Envoy: loaded, killed and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from extproc.demo.llama_server import find_llama_server
from extproc.demo.port import free_ports
from tests.demo.test_process import gone
from tests.e2e.kept import KeptStack, Machine, kept, models_by_machine
from tests.e2e.stack import CHAT, chat, until

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

PRELOADED: dict[str, dict[str, Any]] = {
    "small": {"preload": True, "aliases": ["tiny"]},
    "medium": {"preload": True},
}


def in_shell(model: Path) -> list[str]:
    """A command with a shell that waits for its llama-server."""
    server = f"{find_llama_server()} -m {model} --alias large -t 1 --no-webui --parallel 2 -c 16384"
    return ["sh", "-c", f"{server} --host ${{HOST}} --port ${{PORT}}; exit 3"]


def guard_of(pid: int) -> int:
    """The session of all processes of a server is its guard's."""
    return os.getsid(pid)


async def test_models_are_served_under_their_names_and_come_back(
    llama: None, tmp_path: Path
) -> None:
    missing = tmp_path / "no\x1b[2Jmodel.gguf"
    models = PRELOADED | {
        "large": {"preload": True, "cmd": in_shell(tmp_path / "large.gguf")},
        "huge": {"cmd": [str(find_llama_server()), "-m", str(missing)]},
    }
    async with kept(tmp_path, models, 100) as fleet:
        failing = asyncio.create_task(fleet.ask("huge"))
        await fleet.until_picked("small", "medium", "large")
        for name in ("small", "medium", "small"):
            fleet.check(name, await fleet.ask(name))
        fleet.check("small", await fleet.ask("tiny"))
        fleet.kill_server("medium")
        (of_shell,) = fleet.pids("large")
        guard = guard_of(of_shell)
        os.kill(guard, signal.SIGKILL)
        assert await gone(of_shell), "it is no child of its guard, and goes with it"

        async def have_restarted() -> bool:
            found = [(await fleet.models())[name] for name in ("medium", "large")]
            return all(one.exits == 1 and one.state == "loaded" for one in found)

        await until(have_restarted)
        await fleet.until_picked("medium", "large")
        fleet.check("medium", await fleet.ask("medium"))
        fleet.check("large", await fleet.ask("large"))
        assert fleet.keeper is not None
        logs = await fleet.stack.children.start(
            "logs",
            [
                *(sys.executable, "-m", "extproc.cli", "logs", "gpu-1/medium", "-n", "500"),
                *("--picker", f"127.0.0.1:{fleet.stack.admin_port}"),
            ],
        )
        assert await logs.wait() == 0
        text = logs.log_tail(600)
        assert "was killed by SIGKILL" in text and "model loaded" in text
        await fleet.until_state(huge="failed")
        for answer in (await failing, await fleet.ask("huge")):
            assert answer.status_code == 503, "it does not wait for what will not come"
            assert answer.headers["x-coxswain-reason"] == "model-failed"
            message = answer.json()["error"]["message"]
            assert message.startswith("The model huge cannot be loaded at gpu-1: ended with exit")
        own_log = fleet.keeper.log.read_bytes()
        assert b"\\x1b[2Jmodel.gguf" in own_log and b"\x1b" not in own_log
        os.kill(fleet.keeper.pid, signal.SIGTERM)
        assert await fleet.keeper.wait() == 0, fleet.keeper.log_tail(50)
        assert not fleet.pids("small") + fleet.pids("medium")


async def test_a_killed_keeper_leaves_no_server_and_a_new_one_heals(
    llama: None, tmp_path: Path
) -> None:
    async with kept(tmp_path, PRELOADED, 100) as fleet:
        await fleet.until_picked("small", "medium")
        pids = fleet.pids("small") + fleet.pids("medium")
        assert len(pids) == 4, "two servers and their guards"
        assert fleet.keeper is not None
        os.kill(fleet.keeper.pid, signal.SIGKILL)
        assert [await gone(pid) for pid in pids] == [True] * 4
        await fleet.stack.until(
            lambda status: all(one["health"] == "down" for one in status["endpoints"].values())
        )
        await fleet.start_keeper()
        await fleet.until_state(small="loaded", medium="loaded")
        await fleet.until_picked("small", "medium")
        fleet.check("small", await fleet.ask("small"))
        await check_a_second_keeper(fleet)


async def check_a_second_keeper(fleet: KeptStack) -> None:
    """One of the same name, with ports of its own, is refused and has nothing loaded; the first
    serves on."""
    first = fleet.machines[0]
    ports = dict(zip(first.ports, free_ports(len(first.ports)), strict=True))
    text = first.file.read_text()
    for name, port in ports.items():
        text = text.replace(f"port: {first.ports[name]}", f"port: {port}")
    second = Machine(first.name, first.file.with_name("second.yaml"), ports)
    second.file.write_text(text)
    keeper = await fleet.start_keeper(second)

    async def is_refused() -> bool:
        status = await fleet.stack.status()
        is_reported = any("a second keeper calls itself gpu-1" in one for one in status["problems"])
        servers_and_guards = [len(fleet.pids(name)) for name in PRELOADED]
        is_logged = "another keeper of gpu-1 is connected" in keeper.log_tail(100)
        return is_reported and is_logged and servers_and_guards == [2, 2]

    await until(is_refused)
    fleet.check("small", await fleet.ask("small"))
    os.kill(keeper.pid, signal.SIGTERM)
    assert await keeper.wait() == 0, keeper.log_tail(50)


async def test_a_machine_loads_models_for_its_pool(llama: None, tmp_path: Path) -> None:
    """The keepers of two pools have the same models: a request loads its model in its own pool, and
    no other one is served there."""
    settings = {
        "pools": {
            "chat": {"default": True},
            "batch": {"header": {"name": "x-team", "value": "batch"}},
        },
        "machines": {"gpu-2": {"in_pool": "batch"}},
    }
    async with kept(tmp_path, {"small": {}, "medium": {}}, 10, settings, machines=2) as fleet:
        stack = fleet.stack
        await stack.until(lambda status: len(status["machines"]) == 2)
        body = {**chat(4), "model": "small"}
        answer = await stack.client.post(stack.url(CHAT), json=body, headers={"x-team": "batch"})
        fleet.check("small", answer)
        assert answer.headers["x-coxswain-endpoint"] == "gpu-2.small"
        answer = await fleet.ask("medium")
        fleet.check("medium", answer)
        assert answer.headers["x-coxswain-endpoint"] == "gpu-1.medium"
        found = models_by_machine(await stack.status())
        assert found["gpu-2"]["small"]["state"] == found["gpu-1"]["medium"]["state"] == "loaded"
        assert found["gpu-1"]["small"]["state"] == found["gpu-2"]["medium"]["state"] == "unloaded"
