"""What Ctrl-C does, wherever a command is when somebody presses it, once or in a hurry.

| when | what it does |
|---|---|
| modules are loaded, or the process ends | ends it there and then, without a word |
| a command talks to a picker | cancels it, so that the terminal is given back as it was |
| `serve`, `agent` and `up` run | what these say themselves |

Python's own handler raises `KeyboardInterrupt` between any two instructions: in the middle of an
import, of a terminal's repair or of a thread's end. None of them bears that.
"""

import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any


def end_at_once() -> None:
    """From here on Ctrl-C ends the process. One that was started to ignore it goes on to."""
    if _is_ours():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_interruptible(command: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a command in an event loop of its own; Ctrl-C cancels what it awaits.

    Raises `KeyboardInterrupt` if that ended it, when all its `finally` are through.
    """
    import asyncio

    is_interrupted = False

    async def run() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None

        def press(*_: object) -> None:
            nonlocal is_interrupted
            is_interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        before = signal.signal(signal.SIGINT, press) if _is_ours() else None
        try:
            await command()
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        if not is_interrupted:
            raise
        raise KeyboardInterrupt from None


def _is_ours() -> bool:
    """Signals belong to the main thread; nohup and `&` start processes that ignore SIGINT."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
