"""What the rig reads of the kernel: the processes of a picker, by their command lines."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from bench.process import descriptors, resident_bytes
from extproc.demo.process import until
from rigs.chaos.processes import LAUNCHED, family, of_pickers

SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"


async def started(*arguments: str) -> asyncio.subprocess.Process:
    """A process that waits, with these words in its command line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SLEEP, LAUNCHED, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def test_processes_are_found_by_their_supervisor_and_their_files(tmp_path: Path) -> None:
    ours = str(tmp_path / "coxswain.yaml")
    supervisor = await started("serve", "--config", ours)
    core = await started("process", ours, str(supervisor.pid), "core", "core-1", "7")
    front = await started("process", ours, str(supervisor.pid), "front", "front-1", "8")
    other = await started("process", "elsewhere.yaml", "1", "front", "front-1", "8")
    agent = await started("agent", "--config", ours)
    try:
        assert family(supervisor.pid) == {core.pid: "core", front.pid: "front"}
        assert set(of_pickers(tmp_path)) == {supervisor.pid, core.pid, front.pid}
    finally:
        for each in (supervisor, core, front, other, agent):
            each.kill()
            await each.wait()

    async def are_gone() -> bool:
        return not of_pickers(tmp_path)

    async with asyncio.timeout(60):
        await until(are_gone)


def test_a_process_has_a_size() -> None:
    assert descriptors(os.getpid()) > 0
    assert resident_bytes(os.getpid()) > 1_000_000
