"""Keeps usage in a SQLite file: a row for each hour and key, so that it grows slowly.

Every call blocks on the disk: call it in a thread of its own, and from one thread at a time.
"""

import os
import sqlite3
import time
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from extproc.usage.counts import COUNTED, REAL, Hourly, UsageCounts, UsageKey

VERSION: Final = 2
"""Of the tables; in the file's `user_version`."""
BUSY_TIMEOUT_S: Final = 5.0
KEYS: Final = UsageKey._fields
_MAGIC: Final = b"SQLite format 3\0"
_SUFFIXES: Final = frozenset({".db", ".sqlite", ".sqlite3"})
_COLUMNS: Final = ", ".join(("hour", *KEYS, *COUNTED))
_DEFAULTS: Final = UsageKey._field_defaults
"""With them a picker of an earlier version goes on writing into a file that it shares."""
_TYPES: Final = dict.fromkeys(REAL, "REAL")
_TABLE: Final = f"""
CREATE TABLE usage (
    hour INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL DEFAULT '{_DEFAULTS.get(name, '')}'" for name in KEYS)},
    {", ".join(f"{name} {_TYPES.get(name, 'INTEGER')} NOT NULL DEFAULT 0" for name in COUNTED)},
    PRIMARY KEY (hour, {", ".join(KEYS)})
) WITHOUT ROWID
"""
_COMMON: Final = (
    "hour, client, objective, model, requests, rejected, uncounted, prompt_tokens, "
    "cached_tokens, generated_tokens, slot_s"
)
"""The columns of version 1."""
_MIGRATE: Final = (
    "ALTER TABLE usage RENAME TO usage_1",
    _TABLE,
    f"INSERT INTO usage ({_COMMON}) SELECT {_COMMON} FROM usage_1",  # noqa: S608  # our own names
    "DROP TABLE usage_1",
)
_ADD: Final = (
    f"INSERT INTO usage ({_COLUMNS}) "  # noqa: S608  # our own names
    f"VALUES ({', '.join('?' * (1 + len(KEYS) + len(COUNTED)))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)
)


class UsageError(Exception):
    """The file cannot be read or written; `str(error)` says why and what to do."""


class DamagedError(UsageError):
    """The file's content is damaged: `set_aside` makes room for another one."""


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
    if file.exists() and file.stat().st_size:
        _check_content(path, file)


def _check_content(path: Path, file: Path) -> None:
    # Without a log beside it nobody is writing, and reading it must not leave one.
    how = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True)) as opened:
            _check_version(path, opened)
            result = opened.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise _unusable(path, str(error)) from None
    if result != "ok":
        raise _unusable(path, "it is damaged")


def _check_version(path: Path, file: sqlite3.Connection) -> int:
    version = int(file.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise UsageError(f"{path} was written by a newer Coxswain; name another file in usage.path")
    return version


def _unusable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path}: {reason}. Name a file in usage.path that Coxswain can write, in a folder that is "
        "there"
    )


def _failed(error: sqlite3.Error | OverflowError, text: str) -> UsageError:
    """`text` with its reason, as the error of a damaged file if it is that."""
    return _kind(error)(f"{text}: {error}")


def _kind(error: sqlite3.Error | OverflowError) -> type[UsageError]:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # else its extended form
    return DamagedError if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else UsageError


def set_aside(path: Path) -> Path:
    """Give a damaged file, which nobody has open, another name beside it, and return that. Raises
    `UsageError`, also for a file that was never ours to move: one without the first bytes of
    SQLite and without the name of a database."""
    file = Path(os.path.realpath(path))
    try:
        with open(file, "rb") as stream:
            is_ours = stream.read(len(_MAGIC)) == _MAGIC or file.suffix in _SUFFIXES
        if not is_ours:
            raise _unusable(path, "it is a file of something else")
        aside = file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        file.rename(aside)
        for end in ("-wal", "-shm"):  # SQLite looks for them by the name
            with suppress(FileNotFoundError):
                file.with_name(file.name + end).rename(aside.with_name(aside.name + end))
    except OSError as error:
        raise _unusable(path, f"it is damaged, and cannot be set aside: {error.strerror}") from None
    return aside


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
            self._identity = _identity(path)
        except sqlite3.Error as error:
            self._close()
            raise _kind(error)(str(_unusable(path, str(error)))) from None
        except UsageError:
            self._close()
            raise

    def is_in_place(self) -> bool:
        """Whether the file is still what stands at its path."""
        return _identity(self._path) == self._identity

    def _prepare(self) -> None:
        version = _check_version(self._path, self._file)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash cannot damage it
        if version < VERSION:
            with self._file:  # commits, or rolls back
                self._file.execute("BEGIN IMMEDIATE")
                found = int(self._file.execute("PRAGMA user_version").fetchone()[0])
                for step in () if found == VERSION else _MIGRATE if found else (_TABLE,):
                    self._file.execute(step)
                self._file.execute(f"PRAGMA user_version = {VERSION}")

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
            raise _failed(error, f"usage cannot be saved in {self._path}") from None

    def forget_before(self, unix_s: float) -> None:
        """Remove the hours that began before; raises `UsageError`."""
        try:
            self._file.execute("DELETE FROM usage WHERE hour < ?", (int(unix_s),))
        except sqlite3.Error as error:
            raise _failed(error, f"usage cannot be saved in {self._path}") from None

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
            raise _failed(error, f"usage cannot be read from {self._path}") from None

    def hours(self, since: float) -> dict[str, dict[int, int]]:
        """The tokens of each client by the Unix time at which an hour began, of the hours that
        began at `since` or later. Raises `UsageError`."""
        query = (
            "SELECT client, hour, TOTAL(prompt_tokens) + TOTAL(generated_tokens) FROM usage "
            "WHERE hour >= ? GROUP BY client, hour"
        )
        found: dict[str, dict[int, int]] = {}
        try:
            for client, hour, tokens in self._file.execute(query, (int(since),)):
                found.setdefault(client, {})[hour] = round(tokens)
        except sqlite3.Error as error:
            raise _failed(error, f"usage cannot be read from {self._path}") from None
        return found

    def close(self) -> None:
        """Close the file. Never raises."""
        with suppress(sqlite3.Error):  # SQLite itself leaves the log of a file that was moved
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._close()

    def _close(self) -> None:
        with suppress(sqlite3.Error, AttributeError):  # it may not have been opened
            self._file.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _row(values: tuple[object, ...]) -> UsageRow:
    names, sums = values[: len(KEYS)], values[len(KEYS) :]
    counts = UsageCounts()
    for name, value in zip(COUNTED, sums, strict=True):
        assert isinstance(value, float)
        setattr(counts, name, value if name in REAL else round(value))
    return UsageRow(UsageKey(*map(str, names)), counts)


def rows_of(hourly: Hourly, since: float, by: Collection[str], limit: int) -> list[UsageRow]:
    """The same as `UsageStore.read`, of counts that are not in any file."""
    sums: dict[UsageKey, UsageCounts] = {}
    for (hour, key), counts in hourly.items():
        if hour >= int(since):
            shown = UsageKey(
                *(value if name in by else "" for name, value in zip(KEYS, key, strict=True))
            )
            sums.setdefault(shown, UsageCounts()).add(counts)
    if not by:
        sums.setdefault(UsageKey(tier=""), UsageCounts())
    rows = [UsageRow(key, counts) for key, counts in sums.items()]
    rows.sort(key=lambda row: (-row.counts.prompt_tokens - row.counts.generated_tokens, row.key))
    return rows[:limit]
