"""The cost of scraping a hundred idle endpoints."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import rig
from bench.process import cpu_seconds
from bench.result import Section, at_most
from extproc.demo.process import Children

ENDPOINTS = 100
SETTLING_S = 35.0
"""Until the scraper has seen for half a minute that nothing happens there."""
SECONDS = 20.0


async def measure(say: Callable[[str], None]) -> Section:
    """The picker's processor time while nothing but its own looks happens."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            ports = await rig.start_stand_ins(children, folder, ENDPOINTS, 4)
            picker, _ = await rig.start_picker(children, folder, ports)
            say(f"scraping: {ENDPOINTS} endpoints settle for {SETTLING_S:g} s")
            await asyncio.sleep(SETTLING_S)
            say(f"scraping: {ENDPOINTS} idle endpoints for {SECONDS:g} s")
            before, began = cpu_seconds(picker.pid), time.monotonic()
            await asyncio.sleep(SECONDS)
            used = cpu_seconds(picker.pid) - before
            share = used / (time.monotonic() - began)
    return Section(
        title="Scraping",
        method=f"{ENDPOINTS} idle endpoints of 4 slots at the slow interval, {SECONDS:g} s after "
        f"{SETTLING_S:g} s of settling",
        rows=(at_most("share of one core", 100 * share, 10, " %"),),
    )
