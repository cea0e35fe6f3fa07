"""Loads many modules in less time."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Before its first model pydantic reads what all installed packages say of themselves, to find
# plugins: a twelfth of the time of a start. None has a part in what the commands read.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# httpx would load its own command, where click is installed, and rich and pygments with it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Import in this context what a process keeps: to look for garbage among a thousand modules
    takes an eighth of the time of loading while they are being loaded, and as much once more when
    they are there. The little that there is stays with them. TLS contexts that a module makes as it
    is imported read the system's CAs at their first connection."""
    gc.disable()
    try:
        from extproc.cli.late_cas import cas_read_late

        with cas_read_late():
            yield
    finally:
        gc.freeze()
        gc.enable()
