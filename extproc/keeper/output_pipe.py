"""What a process and everything that it starts print, read as it comes.

Not asyncio's own pipe: that would wait for all processes that have it open, and some outlive the
one that was started.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

CHUNK_BYTES: Final = 65_536


class OutputPipe:
    """`feed` gets what is printed; `ended` is called once, after the last of it. Belongs to one
    event loop."""

    def __init__(self, feed: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._feed = feed
        self._ended = ended
        source, self.sink = os.pipe()
        os.set_blocking(source, False)
        self._source: int | None = source
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(source, self._read)

    def close_sink(self) -> None:
        """The process has its own copy of `sink`, or could not be started."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1

    def close(self) -> None:
        """Read what there still is, and no more."""
        while self._read():
            pass
        self._close_source()

    def _read(self) -> bool:
        """Read what there is; returns whether there may be more."""
        if self._source is None:
            return False
        try:
            chunk = os.read(self._source, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._close_source()
            return False
        self._feed(chunk)
        return True

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self._loop.remove_reader(source)
            os.close(source)
            self._ended()
