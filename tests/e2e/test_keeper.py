"""A keeper with real llama-servers behind a real Envoy: loaded, killed and stopped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.demo.test_process import gone
from tests.e2e.kept import kept
from tests.e2e.stack import until

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

PRELOADED: dict[str, dict[str, Any]] = {
    "small": {"preload": True, "aliases": ["tiny"]},
    "medium": {"preload": True},
}


async def test_models_are_served_under_their_names_and_come_back(
    llama: None, tmp_path: Path
) -> None:
    async with kept(tmp_path, PRELOADED, 100) as fleet:
        await fleet.until_picked("small", "medium")
        for name in ("small", "medium", "small"):
            fleet.check(name, await fleet.ask(name))
        fleet.check("small", await fleet.ask("tiny"))
        fleet.kill_server("medium")

        async def has_restarted() -> bool:
            one = (await fleet.models())["medium"]
            return one.exits == 1 and one.state == "loaded"

        await until(has_restarted)
        await fleet.until_picked("medium")
        fleet.check("medium", await fleet.ask("medium"))
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
