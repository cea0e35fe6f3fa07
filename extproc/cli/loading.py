"""Loads many modules in less time."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Before its first model pydantic reads what all installed packages say of themselves, to find
# plugins: a twelfth of the time of a start. None has a part in what the commands read.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Import in this context what a process keeps: to look for garbage among a thousand modules
    takes an eighth of the time of loading while they are being loaded, and as much once more when
    they are there. The little that there is stays with them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
