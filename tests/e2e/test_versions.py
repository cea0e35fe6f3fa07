"""Another version is installed where the processes of `fronts` run, and they start one by one."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from extproc.processes.fronts import frames
from tests.e2e.fronted import fronted
from tests.e2e.stack import until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
VERSION = f"VERSION: Final = {frames.VERSION}"
ROLES = ("core", "spare", "front")


async def test_in_the_end_all_are_of_the_version_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A front is killed, and its successor is of a version that the core does not understand. Each
    process of the version before is replaced; everybody is answered, nobody past a full server."""
    installed = tmp_path / "installed"
    for package in ("extproc", "scraper"):
        leftovers = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, installed / package, ignore=leftovers)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    headers_only = {"routing": {"read_body": "never"}, "envoy": {"message_timeout_s": 60.0}}
    async with fronted(tmp_path, settings=headers_only) as stack:

        async def pids() -> set[int]:
            return {pid for role in ROLES for pid in await stack.pids(role)}

        before = await pids()
        assert len(before) == 4
        source = installed / "extproc/processes/fronts/frames.py"
        text = source.read_text(encoding="utf-8")
        assert VERSION in text
        newer = f"VERSION: Final = {frames.VERSION + 1}"
        source.write_text(text.replace(VERSION, newer), encoding="utf-8")
        stack.account.traces.clear()
        await stack.run(offered=0.7, length_s=8.0, seed=1, role="front", number=signal.SIGKILL)

        async def are_new() -> bool:
            await asyncio.sleep(0)
            return not before & await pids()

        await until(are_new)
        await stack.until_complete(2)
        account = stack.account
        described = account.describe(stack.broken_at)
        assert not account.unanswered(), described
        assert not account.over(), described
        assert stack.stack.picker is not None
        log = stack.stack.picker.log.read_text()
        assert log.count("is replaced: ") == 3, "a core, its spare that led then, and a front"
