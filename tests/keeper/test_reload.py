"""Claims about extproc/app/keeper.py: a whole keeper before a real picker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import grpc
import pytest
import yaml

from extproc.admin.auth.guard import Guard
from extproc.app.keeper import KeeperPlan, run_keeper
from extproc.demo.port import free_ports
from extproc.security.tokens import Token
from tests.fakes.picker import running_picker
from tests.keeper.test_model_server import TINY
from tests.keeper.waits import until


def write(file: Path, first_port: int, **models: dict[str, object]) -> None:
    content = {
        "memory_mb": 100,
        "first_port": first_port,
        "models": {
            name: {"cmd": [sys.executable, str(TINY)], "memory_mb": 10, "preload": True, **entry}
            for name, entry in models.items()
        },
    }
    file.write_text(yaml.safe_dump(content, sort_keys=False))


async def test_a_signal_reloads_the_file(tmp_path: Path) -> None:
    """What is the same keeps its server and its port, although a model was added before it."""
    file = tmp_path / "models.yaml"
    first = free_ports(5)[0]
    write(file, first, qwen={}, coder={})
    async with running_picker(places_models=True) as picker:
        plan = KeeperPlan(
            picker="the picker",
            models=file,
            advertise="127.0.0.1",
            name="gpu-1",
            drain_timeout_s=1.0,
        )
        keeping = asyncio.create_task(
            run_keeper(plan, lambda: grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}"))
        )

        def states() -> dict[str, str]:
            machine = picker.keepers.machines.get("gpu-1")
            if machine is None or not machine.is_connected:
                return {}
            return {name: one.state.value for name, one in machine.statuses.items()}

        await until(lambda: states() == {"qwen": "loaded", "coder": "loaded"})
        before = picker.keepers.machines["gpu-1"]
        file.write_text("models: []")
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.2)
        assert states() == {"qwen": "loaded", "coder": "loaded"}, "a mistake changes nothing"
        write(file, first, tiny={"preload": False}, qwen={}, coder={"aliases": ["code"]})
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: list(states()) == ["tiny", "qwen", "coder"])
        await until(lambda: states() == {"tiny": "unloaded", "qwen": "loaded", "coder": "loaded"})
        after = picker.keepers.machines["gpu-1"]
        for name in ("qwen", "coder"):
            assert after.models[name].address == before.models[name].address
        loads = {name: one.load_s for name, one in before.statuses.items()}
        assert after.statuses["qwen"].load_s == loads["qwen"], "it was not loaded again"
        assert after.statuses["coder"].load_s != loads["coder"]
        assert after.models["coder"].aliases == ("code",)
        assert after.models["tiny"].address.port not in {
            one.address.port for name, one in after.models.items() if name != "tiny"
        }
        os.kill(os.getpid(), signal.SIGTERM)
        await keeping


async def test_a_token_that_was_rotated_is_sent_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As its file has it."""
    caplog.set_level(logging.INFO)
    file, token = tmp_path / "models.yaml", tmp_path / "token"
    write(file, free_ports(5)[0], qwen={})
    token.write_text("first\n")
    guard, channels = Guard(agents=Token.from_file(token)), []
    async with running_picker(places_models=True, interceptors=(guard,)) as picker:

        def connect() -> grpc.aio.Channel:
            channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}"))
            return channels[-1]

        plan = KeeperPlan(
            picker="the picker",
            models=file,
            advertise="127.0.0.1",
            name="gpu-1",
            token="first",
            token_file=token,
        )
        keeping = asyncio.create_task(run_keeper(plan, connect))

        def is_connected() -> bool:
            machine = picker.keepers.machines.get("gpu-1")
            return machine is not None and machine.is_connected

        await until(is_connected)
        token.write_text("second\n")
        await until(lambda: "--token-file has changed" in caplog.text)
        before = picker.keepers.machines["gpu-1"]
        for number in range(len(channels)):  # its closing opens others
            await channels[number].close()
        await until(lambda: picker.keepers.machines["gpu-1"] is not before and is_connected())
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
