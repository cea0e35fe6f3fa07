"""Processes of their own for load, and what a process costs, read from the kernel."""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


async def call(module: str, **arguments: Any) -> Any:
    """Run `python -m module` with these arguments as JSON, so that it does not share our
    interpreter; returns the JSON that it prints. Raises `RuntimeError` if it fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, json.dumps(arguments)), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} failed")
    return json.loads(output)


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def session_cpu_seconds(leader: int) -> float:
    """The same of all processes that are in the session of this one now."""
    sum_s = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                sum_s += cpu_seconds(int(folder.name))
    return sum_s


async def cpu_share(pid: int, seconds: float) -> float:
    """The share of one core that the process uses in the next seconds."""
    before_s, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before_s) / (time.monotonic() - began)


def resident_bytes(pid: int) -> int:
    """Memory that the process has in use now. Raises `OSError` if it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} reports no VmRSS")


def descriptors(pid: int) -> int:
    """How many files and sockets the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
