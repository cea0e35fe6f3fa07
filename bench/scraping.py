"""The cost of scraping a hundred idle endpoints."""

import asyncio

from bench.process import cpu_share
from bench.result import Say, Section, at_most
from bench.rig import Rig

ENDPOINTS = 100
SETTLING_S = 35.0
"""Until the scraper has seen for half a minute that nothing happens there."""
SECONDS = 20.0


async def measure(say: Say) -> Section:
    """The picker's processor time while nothing but its own looks happens."""
    async with Rig() as rig:
        picker, _ = await rig.start_picker(await rig.start_stand_ins(ENDPOINTS, 4), {})
        say(f"scraping: {ENDPOINTS} endpoints settle for {SETTLING_S:g} s")
        await asyncio.sleep(SETTLING_S)
        say(f"scraping: {ENDPOINTS} idle endpoints for {SECONDS:g} s")
        share = await cpu_share(picker.pid, SECONDS)
    return Section(
        title="Scraping",
        method=f"{ENDPOINTS} idle endpoints of 4 slots at the slow interval, {SECONDS:g} s after "
        f"{SETTLING_S:g} s of settling",
        rows=(at_most("share of one core", 100 * share, 10, " %"),),
    )
