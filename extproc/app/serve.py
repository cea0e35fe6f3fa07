"""Runs one picker until it gets a signal."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from extproc.app import collector
from extproc.app.poller import start_poller
from extproc.app.service import Service
from extproc.app.service_manager import ServiceManager
from extproc.settings import Settings

log = logging.getLogger("coxswain.settings")


async def serve(
    settings: Settings,
    load: Callable[[], Settings] | None = None,
    file: str = "",
) -> int:
    """Serve until SIGTERM or SIGINT, then stop cleanly; a second signal stops at once. Returns the
    exit code.

    `load` reads the settings again when an operator or a SIGHUP asks for it; `file` is where
    they are, for people to see. Raises `ListenError` for a port that cannot be had. What else
    forbids a start, `preflight` finds before.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    start_poller()
    service = Service(settings, load, file)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.create_task(service.settings.follow(log))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    await service.start()
    collector.settle()
    manager = ServiceManager(os.environ)
    manager.ready(f"serving Envoy on {settings.listen.grpc}")
    await stopping.wait()
    manager.stopping()
    stopping.clear()
    leaving = asyncio.create_task(service.stop())
    hurry = asyncio.create_task(stopping.wait())
    await asyncio.wait({leaving, hurry}, return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, hurry):
        task.cancel()
    await asyncio.gather(leaving, hurry, return_exceptions=True)
    manager.close()
    return 0
