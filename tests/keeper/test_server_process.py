"""Claims about extproc/keeper/server_process.py and guard.py: no process is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from extproc.demo.process import Child
from extproc.keeper import guard
from extproc.keeper.log_ring import LogRing
from extproc.keeper.server_process import ServerProcess
from tests.demo.test_process import gone, is_alive
from tests.keeper.waits import until

FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
far = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                       start_new_session=True)
if sys.argv[1:] == ["stubborn"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pids", os.getpid(), child.pid, far.pid, flush=True)
time.sleep(600)
"""
"""A server with a child, and one that tried to get away."""


def pids_in(log: LogRing) -> list[int]:
    for line in log.tail(100):
        if line.startswith("pids "):
            return [int(word) for word in line.split()[1:]]
    return []


async def family(log: LogRing, *more: str) -> tuple[ServerProcess, list[int]]:
    process = await ServerProcess.start([sys.executable, "-c", FAMILY, *more], {}, log)
    await until(lambda: pids_in(log))
    return process, pids_in(log)


async def test_a_stop_ends_the_server_and_all_that_it_started() -> None:
    process, pids = await family(LogRing())
    await process.stop()
    assert not process.is_running
    assert [await gone(pid) for pid in pids] == [True] * 3
    assert process.how_it_ended() == "was killed by SIGTERM"
    await process.stop()  # twice is no error


async def test_a_server_that_ignores_the_stop_is_killed() -> None:
    log = LogRing()
    process, pids = await family(log, "stubborn")
    await process.stop(0.2)
    assert [await gone(pid) for pid in pids] == [True] * 3
    assert process.how_it_ended() == "was killed by SIGKILL"
    assert "is killed" in log.tail(1)[0]


async def test_a_cancelled_stop_kills_and_waits_for_the_end() -> None:
    """Whoever stops the keeper's machine may rely on it: its event loop ends soon after."""
    process, pids = await family(LogRing(), "stubborn")
    stopping = asyncio.create_task(process.stop(60))
    await asyncio.sleep(0.05)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not process.is_running
    assert [await gone(pid) for pid in pids] == [True] * 3


async def test_a_server_that_dies_leaves_nothing() -> None:
    process, pids = await family(LogRing())
    os.kill(pids[0], signal.SIGKILL)
    await process.wait()
    assert [await gone(pid) for pid in pids] == [True] * 3
    assert process.how_it_ended() == "was killed by SIGKILL"


async def test_a_killed_guard_leaves_nothing() -> None:
    """The kernel kills its server; the keeper finds what that has started, also what has left its
    session. Those of another guard live on."""
    log = LogRing()
    process, pids = await family(log)
    other, others = await family(LogRing())
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert [await gone(pid) for pid in pids] == [True] * 3
    assert "its guard is gone" in log.tail(1)[0]
    assert all(is_alive(pid) for pid in (other.pid, *others))
    await other.stop()


async def test_a_killed_keeper_takes_its_servers_with_it(tmp_path: Path) -> None:
    """Whatever kills it: the kernel tells the guard."""
    code = (
        "import asyncio, sys; from extproc.keeper.log_ring import LogRing\n"
        "from extproc.keeper.server_process import ServerProcess\n"
        "async def main():\n"
        "    log = LogRing()\n"
        "    log.add = lambda line: print(line, flush=True)\n"
        "    await ServerProcess.start([sys.executable, '-c', sys.argv[1]], {}, log)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    keeper = await Child.start(
        "keeper", [sys.executable, "-c", code, FAMILY], log=tmp_path / "keeper.log"
    )
    try:
        await until(lambda: "pids" in keeper.log_tail())
        pids = [int(word) for word in keeper.log_tail().split()[1:4]]
        assert all(map(is_alive, pids))
        os.kill(keeper.pid, signal.SIGKILL)
        assert [await gone(pid) for pid in pids] == [True] * 3
    finally:
        await keeper.stop()


async def test_exit_status_output_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words without an end of line count, too; the keeper's own variables stay here."""
    monkeypatch.setenv("COXSWAIN_TOKEN", "secret-of-the-keeper")
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    log = LogRing()
    code = "import os, sys; print(os.environ['A'], "
    code += "os.environ.keys() & {'COXSWAIN_TOKEN', 'PYDANTIC_DISABLE_PLUGINS'} or None); "
    code += "sys.stderr.write('bye'); sys.exit(7)"
    process = await ServerProcess.start([sys.executable, "-c", code], {"A": "b"}, log)
    async with asyncio.timeout(60):
        await process.wait()
    assert process.how_it_ended() == "ended with exit status 7"
    assert sorted(" ".join(log.tail(10)).split()) == ["None", "b", "bye"] or sorted(
        log.tail(10)
    ) == ["b None", "bye"]


async def test_a_command_that_is_not_there_is_said() -> None:
    log = LogRing()
    process = await ServerProcess.start(["/no/such/llama-server"], {}, log)
    async with asyncio.timeout(60):
        await process.wait()
    assert process.how_it_ended() == "ended with exit status 127"
    assert log.tail(1) == ["/no/such/llama-server: No such file or directory"]


def test_a_server_does_not_start_without_its_guard(tmp_path: Path) -> None:
    """A guard that dies right after the fork leaves a process with another parent."""
    begun = tmp_path / "begun"
    child = os.fork()
    if child == 0:
        guard.run_server(["touch", str(begun)], os.getpid())  # nobody is its own parent
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == guard.NOT_RUN
    assert not begun.exists()
