"""Reads of files that may block: a pipe without a writer, a file of a server that does not answer.

`asyncio.to_thread` has a handful of threads for everything, name look-ups too, and a process does
not end before they do. Here each read has a thread of its own, which nobody waits for for long.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from errno import ETIMEDOUT
from typing import Any, Final, TypeVar

READ_S: Final = 5.0
MAX_BLOCKED: Final = 4
"""Reads of one follower that block; further ones fail at once until one of them ends."""

ResultT = TypeVar("ResultT")


class BlockedReadError(OSError):
    """A file did not answer in time."""

    def __init__(self, timeout_s: float) -> None:
        what = "it is a pipe, or its file system does not answer"
        super().__init__(ETIMEDOUT, f"not read within {timeout_s:g} s: {what}")

    def __str__(self) -> str:
        return self.strerror or ""


def at_once(path: str, flags: int) -> int:
    """An `opener` for `open`: a pipe that nobody writes to is empty, and does not block."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


class Reads:
    """The reads of one follower. Belongs to one event loop."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = READ_S if timeout_s is None else timeout_s
        self._open: list[Future[Any]] = []

    async def __call__(self, read: Callable[..., ResultT], *arguments: object) -> ResultT:
        """What `read` returns or raises in a thread. Raises `BlockedReadError` if that takes
        longer than `timeout_s`; the thread goes on, and its result is nobody's."""
        self._open = [one for one in self._open if not one.done()]
        if len(self._open) >= MAX_BLOCKED:
            raise BlockedReadError(self._timeout_s)
        result: Future[ResultT] = Future()
        result.set_running_or_notify_cancel()  # so that cancelling its caller is nothing to it

        def run() -> None:
            try:
                result.set_result(read(*arguments))
            except BaseException as error:  # noqa: BLE001 - the caller's
                result.set_exception(error)

        self._open.append(result)
        threading.Thread(target=run, name="read a file", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(result)
        except TimeoutError:
            if not result.done():
                raise BlockedReadError(self._timeout_s) from None
            return result.result()  # its own error, or what came while the loop was busy
