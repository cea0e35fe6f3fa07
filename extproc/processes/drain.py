"""Ends the processes of a supervisor in order: what they hold drains, or another member has it."""

import asyncio
from contextlib import suppress
from typing import Final

from extproc.processes.cluster_part import ClusterPart
from extproc.processes.process_table import ProcessTable

STOP_MARGIN_S: Final = 5.0


async def drain(table: ProcessTable, drain_timeout_s: float) -> None:
    """Let the core drain, then end the others. Raises `TimeoutError` if one does not end."""
    for front in table.fronts():
        front.order("unready")
    for spare in table.spares():
        spare.order("stop")
    core = table.core
    if core is not None:
        core.order("stop")
        async with asyncio.timeout(drain_timeout_s + STOP_MARGIN_S):
            await core.wait()
    rest = list(table)
    for member in rest:
        member.order("stop")
    async with asyncio.timeout(STOP_MARGIN_S):
        await asyncio.gather(*(member.wait() for member in rest))


async def hand_over(table: ProcessTable, cluster: ClusterPart, drain_timeout_s: float) -> bool:
    """Let another member lead, and let our fronts follow it until what they hold has ended. Returns
    False if there is no other member."""
    if not cluster.others():
        return False
    fronts = table.fronts()
    core, table.core = table.core, None
    if core is not None:
        core.end_at_once()
        await core.wait()
    if cluster.is_leading:
        await cluster.resign()
    for front in fronts:
        front.order("leave")
    with suppress(TimeoutError):
        async with asyncio.timeout(drain_timeout_s + STOP_MARGIN_S):
            await asyncio.gather(*(front.wait() for front in fronts))
    return True
