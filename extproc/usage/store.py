"""Keeps usage in a SQLite file: a row for each hour and key, so that it grows slowly.

Every call blocks on the disk: call it in a thread of its own, and from one thread at a time.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from extproc.usage.counts import COUNTED, Hourly, UsageCounts, UsageKey

VERSION: Final = 1
"""Of the tables; in the file's `user_version`."""
BUSY_TIMEOUT_S: Final = 5.0
KEYS: Final = UsageKey._fields
_COLUMNS: Final = ", ".join(("hour", *KEYS, *COUNTED))
_TABLE: Final = f"""
CREATE TABLE usage (
    hour INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL" for name in KEYS)},
    {", ".join(f"{name} {'REAL' if name == 'slot_s' else 'INTEGER'} NOT NULL" for name in COUNTED)},
    PRIMARY KEY (hour, {", ".join(KEYS)})
) WITHOUT ROWID
"""
_ADD: Final = (
    f"INSERT INTO usage ({_COLUMNS}) "  # noqa: S608  # our own names
    f"VALUES ({', '.join('?' * (1 + len(KEYS) + len(COUNTED)))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)
)


class UsageError(Exception):
    """The file cannot be read or written; `str(error)` says why and what to do."""


class UsageRow(NamedTuple):
    """The usage of one group. What it is not grouped by is empty."""

    key: UsageKey
    counts: UsageCounts


def check_writable(path: Path) -> None:
    """Raise `UsageError` if `path` cannot be opened, as far as shows without creating it."""
    file = Path(os.path.realpath(path))
    # SQLite's log is written beside it.
    can_write = os.access(file.parent, os.W_OK | os.X_OK)
    if can_write and file.exists():
        can_write = file.is_file() and os.access(file, os.R_OK | os.W_OK)
    if not can_write:
        raise _unusable(path, "it cannot be written")


def _unusable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path}: {reason}. Name a file in usage.path that Coxswain can write, in a folder that is "
        "there"
    )


class UsageStore:
    """One open file. Several pickers on one machine may share it."""

    def __init__(self, path: Path) -> None:
        """Open or create it; raises `UsageError`."""
        self._path = path
        try:
            # One thread at a time uses it, not always the same.
            self._file = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except sqlite3.Error as error:
            raise _unusable(path, str(error)) from None

    def _prepare(self) -> None:
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise UsageError(
                f"{self._path} was written by a newer Coxswain; name another file in usage.path"
            )
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash cannot damage it
        if version == 0:
            self._file.execute("BEGIN IMMEDIATE")
            if self._file.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._file.execute(_TABLE)
                self._file.execute(f"PRAGMA user_version = {VERSION}")
            self._file.execute("COMMIT")

    def add(self, hourly: Hourly) -> None:
        """Add these counts, all or none; raises `UsageError`."""
        rows = [
            (hour, *key, *(getattr(counts, name) for name in COUNTED))
            for (hour, key), counts in hourly.items()
        ]
        try:
            with self._file:  # commits, or rolls back
                self._file.execute("BEGIN IMMEDIATE")
                self._file.executemany(_ADD, rows)
        except (sqlite3.Error, OverflowError) as error:  # a count of more than 63 bits
            raise UsageError(f"usage cannot be saved in {self._path}: {error}") from None

    def forget_before(self, unix_s: float) -> None:
        """Remove the hours that began before; raises `UsageError`."""
        try:
            self._file.execute("DELETE FROM usage WHERE hour < ?", (int(unix_s),))
        except sqlite3.Error as error:
            raise UsageError(f"usage cannot be saved in {self._path}: {error}") from None

    def read(self, since: float, by: Collection[str], limit: int) -> list[UsageRow]:
        """The sums of the hours that began at `since` or later, grouped by these fields of the
        key, those with the most tokens first, at most `limit`. Raises `UsageError`."""
        shown = [name if name in by else "''" for name in KEYS]
        sums = ", ".join(f"TOTAL({name})" for name in COUNTED)
        named = [name for name in KEYS if name in by]
        grouping = f"GROUP BY {', '.join(named)}" if named else ""
        query = (
            f"SELECT {', '.join(shown)}, {sums} FROM usage WHERE hour >= ? {grouping} "  # noqa: S608  # our own names
            f"ORDER BY TOTAL(prompt_tokens) + TOTAL(generated_tokens) DESC, {', '.join(shown)} "
            "LIMIT ?"
        )
        try:
            found: Iterable[tuple[object, ...]] = self._file.execute(query, (int(since), limit))
            return [_row(each) for each in found]
        except sqlite3.Error as error:
            raise UsageError(f"usage cannot be read from {self._path}: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _row(values: tuple[object, ...]) -> UsageRow:
    names, sums = values[: len(KEYS)], values[len(KEYS) :]
    counts = UsageCounts()
    for name, value in zip(COUNTED, sums, strict=True):
        assert isinstance(value, float)
        setattr(counts, name, value if name == "slot_s" else round(value))
    return UsageRow(UsageKey(*map(str, names)), counts)
