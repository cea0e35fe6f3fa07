"""The attributes by which a change of a file is detected without reading it."""

import os
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

SignatureT = TypeVar("SignatureT")


class FileSignature(NamedTuple):
    """None stands for a missing file."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


def read_signature(path: Path) -> FileSignature | None:
    """The current signature of the file; of a symbolic link, its target's. Blocks on the disk."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileSignature(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


class Changes(Generic[SignatureT]):
    """Reports a change when two signatures in a row are equal, so that the file is complete.

    `signature` is that of the content in use.
    """

    def __init__(self, signature: SignatureT) -> None:
        self._taken = self._before = signature

    def has_settled(self, signature: SignatureT) -> bool:
        """Whether to load the file now; each change is reported once."""
        is_still, self._before = signature == self._before, signature
        if not is_still or signature == self._taken:
            return False
        self._taken = signature
        return True
