"""`coxswain top` on a terminal: polls, draws, and survives a restart of the picker."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live

from extproc.cli.admin_client import ExitCode, PickerError
from extproc.cli.output import seconds
from extproc.cli.screens.keys import keys
from extproc.cli.screens.top_data import TopData
from extproc.cli.screens.top_screen import screen_of
from extproc.cli.screens.top_tables import Frame

if TYPE_CHECKING:
    ReadData = Callable[[], Awaitable[TopData]]

REDRAW_S: Final = 1.0
"""The clock goes on although no answer comes."""
PATIENCE_S: Final = 2.0
"""The time without a response after which the screen shows a notice."""
QUIT_KEYS: Final = frozenset({"q", "Q", "\x04", ""})


class Top:
    """Belongs to one event loop. `read_data` reads from the picker at `address`;
    `first` is the first result."""

    def __init__(
        self, read_data: ReadData, address: str, screen: Console, interval_s: float, first: TopData
    ) -> None:
        self._read_data = read_data
        self._address = address
        self._screen = screen
        self._interval_s = interval_s
        self._data = first
        self._seen_at = time.monotonic()
        self._is_lost = False
        self._is_over = False
        self._news = asyncio.Event()

    async def run(self, count: int | None) -> None:
        """Run until a key or a signal ends it, or `count` results were shown for an interval each.

        Raises `PickerError` when the picker wants another token; one that is gone is waited for.
        """
        reading = asyncio.create_task(self._read(count), name="read from the picker")
        reading.add_done_callback(lambda _: self._news.set())
        try:
            with (
                keys(self._pressed),
                _signals(self._leave, self._news.set),
                Live(console=self._screen, screen=True, auto_refresh=False) as live,
            ):
                while not self._is_over and not reading.done():
                    self._news.clear()
                    live.update(self._screen_of_data(), refresh=True)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REDRAW_S):
                            await self._news.wait()
            if reading.done():
                await reading
        finally:
            reading.cancel()

    async def _read(self, count: int | None) -> None:
        seen = 1
        while count is None or seen < count:
            await asyncio.sleep(self._interval_s)
            try:
                self._data = await self._read_data()
            except PickerError as error:
                if error.exit is ExitCode.UNAUTHENTICATED:
                    raise
                self._is_lost = True
            else:
                seen += 1
                self._seen_at = time.monotonic()
                self._is_lost = False
            self._news.set()
        await asyncio.sleep(self._interval_s)

    def _screen_of_data(self) -> Group:
        size = self._screen.size
        frame = Frame(
            address=self._address,
            width=size.width,
            height_lines=size.height,
            is_ascii=self._screen.options.ascii_only,
        )
        return screen_of(self._data, frame, time.strftime("%H:%M:%S"), self._notice())

    def _notice(self) -> str:
        silent_s = time.monotonic() - self._seen_at
        if not self._is_lost and silent_s <= self._interval_s + PATIENCE_S:
            return ""
        return f"no answer from {self._address} for {seconds(silent_s)}; retrying"

    def _pressed(self, key: str) -> None:
        if key in QUIT_KEYS:
            self._leave()

    def _leave(self) -> None:
        self._is_over = True
        self._news.set()


@contextmanager
def _signals(leave: Callable[[], None], redraw: Callable[[], None]) -> Iterator[None]:
    """Restore the terminal also after SIGTERM; draw again when its size changes."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    loop = asyncio.get_running_loop()
    wanted = {signal.SIGTERM: leave, signal.SIGHUP: leave, signal.SIGWINCH: redraw}
    for number, act in wanted.items():
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)
