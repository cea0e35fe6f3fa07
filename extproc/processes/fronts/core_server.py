"""The data plane's server of a core: its fronts listen, and their links bring the calls.

It is apart from the calls because a module with coroutines is not compiled.
"""

import asyncio
from typing import Final

from extproc.processes.fronts.core_calls import CoreCalls

POLL_S: Final = 0.01


class CoreServer:
    """See `DataPlaneServer`."""

    def __init__(self, calls: CoreCalls) -> None:
        self._calls = calls

    async def start(self) -> None:
        """Links are attached as they come."""

    async def stop(self, grace_s: float) -> None:
        """Let calls end within `grace_s`, then end them."""
        end = asyncio.get_running_loop().time() + grace_s
        while len(self._calls) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        self._calls.end_calls()
