"""Single keys from the terminal, while an event loop runs."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Within `with`, report each key at once and do not show it; Ctrl-C works as before.

    The empty string means that the terminal is gone. Without a terminal nothing is reported. The
    terminal is left as it was found. Call it in the main thread.
    """
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            typed = os.read(terminal, 64).decode(errors="replace")
        except OSError:
            typed = ""
        for key in typed:
            pressed(key)
        if not typed:
            loop.remove_reader(terminal)
            pressed("")

    tty.setcbreak(terminal)
    # A shell gives the terminal back with its own modes when a stopped command goes on.
    loop.add_signal_handler(signal.SIGCONT, tty.setcbreak, terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(terminal)
        with suppress(termios.error):  # it is gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
