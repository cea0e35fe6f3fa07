"""What changes about a file when somebody changes it: seen without reading it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class FileLook(NamedTuple):
    """A name that leads nowhere looks like None."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


def look_at(path: Path) -> FileLook | None:
    """How the file looks now; that of a symbolic link is its target's. Blocks on the disk."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileLook(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
