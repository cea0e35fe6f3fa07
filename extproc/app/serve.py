"""`coxswain serve`: a service that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from extproc.app.service import Service

if TYPE_CHECKING:
    from extproc.settings import Settings


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly; a second signal stops at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    service = Service(settings)
    await service.start()
    await stopping.wait()
    stopping.clear()
    leaving = asyncio.create_task(service.stop())
    hurry = asyncio.create_task(stopping.wait())
    await asyncio.wait({leaving, hurry}, return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, hurry):
        task.cancel()
    await asyncio.gather(leaving, hurry, return_exceptions=True)
