"""Waits for an event, with a bound of a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Wait until it is so; `what` is shown if it never is."""
    try:
        async with asyncio.timeout(60):
            while not is_so():  # noqa: ASYNC110  # a process has no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"it never became so: {what()}") from None
