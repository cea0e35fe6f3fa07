"""A folder for the files of one run, which is gone after it, and after the next run at the latest.

The run holds a lock on a file in it. The kernel frees the lock when the run's process ends,
however it ends, so a folder whose lock is free was left behind and can be removed.
"""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "coxswain-up-"
LOCK = "lock"
NEW_S = 10.0
"""A folder younger than this may be about to be locked."""


@contextmanager
def workspace() -> Iterator[Path]:
    """Make the folder, remove it at the end; those that killed runs left are removed first."""
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove every folder of ours in `parent` whose run is over."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < NEW_S:
                continue
            with (folder / LOCK).open("r+", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, another user's, or just being made
