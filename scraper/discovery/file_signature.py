"""The attributes by which a change of a file is detected without reading it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

Look = TypeVar("Look")


class FileSignature(NamedTuple):
    """None stands for a missing file."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


def look_at(path: Path) -> FileSignature | None:
    """The current signature of the file; of a symbolic link, its target's. Blocks on the disk."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileSignature(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


class Changes(Generic[Look]):
    """Tells a change when it looks the same twice: one in the middle of being made is none yet.

    `look` is how it looked when it was last taken over.
    """

    def __init__(self, look: Look) -> None:
        self._taken = self._before = look

    def has_settled(self, look: Look) -> bool:
        """Whether to load the file now; each change is reported once."""
        is_still, self._before = look == self._before, look
        if not is_still or look == self._taken:
            return False
        self._taken = look
        return True
