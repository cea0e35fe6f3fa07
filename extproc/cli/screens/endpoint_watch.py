"""The fleet on the screen while it changes; for scripts, a line of JSON for each change."""

import asyncio
from contextlib import suppress
from typing import Final

from rich.live import Live

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, console, plain, print_json
from extproc.cli.screens.endpoint_table import table_of
from extproc.pb.coxswain.v1 import admin_pb2 as pb

REFRESH_S: Final = 1.0
"""Refresh interval, because ages change without events."""
GAP_S: Final = 0.1
"""The shortest interval between two frames; a busy fleet changes hundreds of times a second."""


async def watch_endpoints(picker: AdminClient, output: Format, pool: str = "") -> None:
    """Show changes until interrupted; raises `PickerError` when the picker goes away."""
    if output is Format.JSON:
        request = pb.WatchEndpointsRequest(pool=pool)
        async for message in picker.follow(picker.admin.WatchEndpoints, request):
            print_json(plain(message), is_line=True)
        return
    changed = asyncio.Event()
    following = asyncio.create_task(_follow(picker, changed))
    try:
        screen = console()
        with Live(console=screen, auto_refresh=False) as live:
            while not following.done():
                changed.clear()
                found = await picker.all_endpoints(pool)
                live.update(table_of(found, screen.width), refresh=True)
                await asyncio.sleep(GAP_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(REFRESH_S):
                        await changed.wait()
        await following
    finally:
        following.cancel()


async def _follow(picker: AdminClient, changed: asyncio.Event) -> None:
    try:
        async for _ in picker.follow(picker.admin.WatchEndpoints, pb.WatchEndpointsRequest()):
            changed.set()
    finally:
        changed.set()
