from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from extproc.demo.process import Child, ChildError, Children

PATIENCE_S = 20.0
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPER


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def gone(pid: int) -> bool:
    """Wait for the process to be gone; False when it outlives all patience."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def start(folder: Path, code: str) -> Child:
    return await Child.start("boat", [sys.executable, "-c", code], log=folder / "log")


async def started(child: Child) -> None:
    async def has_printed() -> bool:
        return child.log_tail() != ""

    await child.wait_ready(has_printed, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("code", [SLEEPER, STUBBORN])
async def test_a_stopped_child_is_gone_even_if_it_ignores_the_polite_signal(
    tmp_path: Path, code: str
) -> None:
    child = await start(tmp_path, code)
    await started(child)
    await child.stop(grace_s=0.05 if code is STUBBORN else PATIENCE_S)
    assert not is_alive(child.pid)
    await child.stop()
    assert await child.wait() == -(signal.SIGKILL if code is STUBBORN else signal.SIGTERM)


async def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        f"print(subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], stdout=-3).pid, flush=True);"
        "time.sleep(600)"
    )
    child = await start(tmp_path, code)
    await started(child)
    grandchild = int(child.log_tail())
    await child.stop()
    assert await gone(grandchild)


async def test_a_child_that_ends_before_it_is_ready_shows_its_last_words(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    child = await start(tmp_path, "print('no such boat'); raise SystemExit(3)")
    with pytest.raises(ChildError, match="boat ended with exit status 3") as caught:
        await child.wait_ready(never, timeout_s=PATIENCE_S)
    assert caught.value.tail == "no such boat"
    await child.stop()


async def test_a_child_that_is_never_ready_is_an_error_and_still_runs(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    child = await start(tmp_path, SLEEPER)
    with pytest.raises(ChildError, match=r"boat was not ready after 0\.1 s"):
        await child.wait_ready(never, timeout_s=0.1)
    assert child.is_running
    await child.stop()


async def test_a_command_that_does_not_exist_is_a_child_that_ended(tmp_path: Path) -> None:
    child = await Child.start("oar", ["/no/such/command"], log=tmp_path / "log")
    assert await child.wait() == 1
    assert "oar ended with exit status 1" in str(child.exit_error())
    assert "/no/such/command: No such file" in child.exit_error().tail
    await child.stop()


async def test_leaving_the_block_stops_every_child(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        sleepers = [
            await children.start(f"boat-{number}", [sys.executable, "-c", SLEEPER])
            for number in range(3)
        ]
    assert not any(is_alive(child.pid) for child in sleepers)


async def test_the_first_child_that_ends_is_reported(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        await children.start("steady", [sys.executable, "-c", SLEEPER])
        lost = await children.start("lost", [sys.executable, "-c", "raise SystemExit(7)"])
        assert await children.first_exit() is lost
        assert "lost ended with exit status 7" in str(lost.exit_error())


async def test_a_cancelled_stop_still_leaves_no_child(tmp_path: Path) -> None:
    children = Children(tmp_path, grace_s=600)
    stubborn = await children.start("stubborn", [sys.executable, "-c", STUBBORN])
    polite = await children.start("polite", [sys.executable, "-c", STUBBORN])
    await started(stubborn)
    await started(polite)
    stopping = asyncio.create_task(children.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not stubborn.is_running and not polite.is_running
    assert await gone(stubborn.pid) and await gone(polite.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the tie to the parent is Linux's")
async def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from extproc.demo.process import Children
async def main():
    children = Children(Path({str(tmp_path)!r}))
    for name in "ab":
        child = await children.start(name, [sys.executable, "-c", {STUBBORN!r}])
        while not child.log_tail():
            await asyncio.sleep(0.01)
        print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = [int(await parent.stdout.readline()) for _ in range(2)]
    assert all(is_alive(pid) for pid in pids)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.communicate()
    assert [await gone(pid) for pid in pids] == [True, True]
