"""Loads many modules in less time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Import in this context what a process keeps: to look for garbage among a thousand modules
    that are still being loaded takes an eighth of the time of loading, and finds none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
