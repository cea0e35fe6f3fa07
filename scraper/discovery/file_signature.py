"""What changes about a file when somebody changes it: seen without reading it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

Look = TypeVar("Look")


class FileSignature(NamedTuple):
    """A name that leads nowhere looks like None."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


def look_at(path: Path) -> FileSignature | None:
    """How the file looks now; that of a symbolic link is its target's. Blocks on the disk."""
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
        """Whether it is to be taken over now, as it looks; each change is told once."""
        is_still, self._before = look == self._before, look
        if not is_still or look == self._taken:
            return False
        self._taken = look
        return True
