"""Files, batches and their lines in one SQLite file.

A line is `WAITING`, then `SENT`, then has a result; its result and the count of its batch change in
one transaction, before anybody learns of it. A process that was killed finds lines that are `SENT`
without a result: it cannot know whether a server answered, so they are sent again, with the same
custom id. A result is written once: whatever comes later for the same line is dropped.

Every call blocks on the disk: call it from one thread at a time, and not in an event loop.
"""

import json
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from extproc.batches.lines import LineProblem, read_lines, unanswered

VERSION: Final = 2
"""Of the tables; in the file's `user_version`."""
BUSY_TIMEOUT_S: Final = 10.0
PART_BYTES: Final = 1024 * 1024
RATE_S: Final = 60.0
"""The time over which the rate of a batch is measured."""
PURPOSES: Final = ("batch", "batch_output")
MAX_MODELS: Final = 256
LIVE: Final = "in_progress"


class State(IntEnum):
    """Of a line. From `DONE` on it is final."""

    WAITING = 0
    SENT = 1
    DONE = 2  # answered with 2xx: a line of the output file
    FAILED = 3  # a line of the file with errors
    LEFT = 4  # the batch ended before it: there, too


class StoreError(Exception):
    """The file cannot be used; `str(error)` says why."""


class FullError(Exception):
    """The files would be larger than the store may be."""


class BusyFileError(Exception):
    """The file belongs to a batch that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a client. `created_at` is in seconds since 1970."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int

    def as_json(self) -> dict[str, Any]:
        """As OpenAI's API has it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": None,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch. Times are in seconds since 1970, None before they came. `key` is the id of the key
    with which its client submitted it, empty where keys are not checked."""

    id: str
    owner: str
    key: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    expires_at: int
    ended_at: int | None
    metadata: str
    errors: str
    total: int
    completed: int
    failed: int
    output_file_id: str | None
    error_file_id: str | None
    per_s: float = 0.0
    """Lines that ended per second in the last `RATE_S`."""

    @property
    def is_live(self) -> bool:
        return self.status == LIVE

    @property
    def left(self) -> int:
        """The lines that have no result yet."""
        return self.total - self.completed - self.failed if self.is_live else 0

    def as_json(self) -> dict[str, Any]:
        """As OpenAI's API has it; `progress` is ours."""
        errors = json.loads(self.errors)
        was_sent = self.total > 0
        ended = {name: self.ended_at if self.status == name else None for name in ENDS}
        expected_s = round(self.left / self.per_s) if self.left and self.per_s else None
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": errors} if errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "in_progress_at": self.created_at if was_sent else None,
            "expires_at": self.expires_at,
            "finalizing_at": self.ended_at if self.status == "completed" else None,
            "cancelling_at": self.ended_at if self.status == "cancelled" else None,
            **{f"{name}_at": at for name, at in ended.items()},
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "metadata": json.loads(self.metadata) or None,
            "progress": {
                "left": self.left,
                "lines_per_s": round(self.per_s, 3),
                "expected_s": expected_s,
            },
        }


ENDS: Final = ("completed", "failed", "expired", "cancelled")
"""The states in which a batch ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that is to be sent."""

    number: int
    batch: str
    owner: str
    endpoint: str
    custom_id: str
    model: str
    body: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Its id in results and in the logs of servers; the same each time that it is sent."""
        return request_id(self.batch, self.number)


def request_id(batch: str, number: int) -> str:
    """The id of a line."""
    return f"batch_req_{batch.removeprefix('batch_')}_{number}"


_TABLES: Final = """
CREATE TABLE files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL, created_at INTEGER NOT NULL,
    batch TEXT NOT NULL DEFAULT '', is_whole INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX files_of_owner ON files (owner, created_at, id);
CREATE TABLE parts (
    file TEXT NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (file, number)
);
CREATE TABLE batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL,
    input_file_id TEXT NOT NULL, completion_window TEXT NOT NULL, status TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, ended_at INTEGER,
    metadata TEXT NOT NULL, errors TEXT NOT NULL,
    total INTEGER NOT NULL, completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0, output_file_id TEXT, error_file_id TEXT
);
CREATE INDEX batches_of_owner ON batches (owner, created_at, id);
CREATE TABLE lines (
    number INTEGER PRIMARY KEY, batch TEXT NOT NULL, custom_id TEXT NOT NULL, model TEXT NOT NULL,
    body BLOB, state INTEGER NOT NULL DEFAULT 0,
    result BLOB, ended_at REAL
);
CREATE INDEX lines_of_batch ON lines (batch, number);
CREATE INDEX open_lines ON lines (model, number) WHERE state < 2;
CREATE INDEX ended_lines ON lines (batch, ended_at) WHERE ended_at IS NOT NULL;
"""
_FILE: Final = "id, owner, filename, purpose, bytes, created_at"
_BATCH: Final = (
    "id, owner, key, endpoint, input_file_id, completion_window, status, created_at, expires_at, "
    "ended_at, metadata, errors, total, completed, failed, output_file_id, error_file_id"
)


class BatchStore:
    """One file, and its log beside it. Belongs to one process; close it with `close`."""

    def __init__(self, path: Path, max_bytes: int = 16 * 1024**3) -> None:
        """Opens or creates the file; `max_bytes` limits the files that clients send. Lines that an
        earlier process sent without recording a result wait again. Raises `StoreError`."""
        self._max_bytes = max_bytes
        try:
            self._db = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from None
        try:
            path.chmod(0o600)
            self._open(path)
        except (sqlite3.Error, OSError) as error:
            self._db.close()
            raise StoreError(f"{path}: {error}") from None
        except StoreError:
            self._db.close()
            raise

    def _open(self, path: Path) -> None:
        # Held until the end: two processes would send the same lines.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise StoreError(f"{path}: it was written by another version of Coxswain")
        with self._transaction():
            if version == 0:
                for statement in _TABLES.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")
            self._db.execute("UPDATE lines SET state = 0 WHERE state = 1")
            # What was being uploaded.
            self._db.execute(
                "DELETE FROM parts WHERE file IN (SELECT id FROM files WHERE NOT is_whole)"
            )
            self._db.execute("DELETE FROM files WHERE NOT is_whole")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # Files

    def begin_file(self, owner: str, purpose: str, now: float) -> str:
        """A file to which parts are added until `end_file`; its id."""
        id_ = f"file-{secrets.token_hex(12)}"
        self._db.execute(
            f"INSERT INTO files ({_FILE}) VALUES (?, ?, '', ?, 0, ?)",  # noqa: S608  # our own names
            (id_, owner, purpose, int(now)),
        )
        return id_

    def add_part(self, file: str, content: bytes) -> None:
        """Add bytes to the end of a file. Raises `FullError`."""
        with self._transaction():
            (used,) = self._db.execute("SELECT COALESCE(SUM(bytes), 0) FROM files").fetchone()
            if used + len(content) > self._max_bytes:
                raise FullError
            self._db.execute(
                "INSERT INTO parts SELECT ?, COALESCE(MAX(number) + 1, 0), ? FROM parts "
                "WHERE file = ?",
                (file, content, file),
            )
            self._db.execute(
                "UPDATE files SET bytes = bytes + ? WHERE id = ?", (len(content), file)
            )

    def end_file(self, file: str, filename: str) -> StoredFile:
        """The file is complete."""
        self._db.execute(
            "UPDATE files SET is_whole = 1, filename = ? WHERE id = ?", (filename, file)
        )
        (found,) = self._files("id = ?", (file,))
        return found

    def drop_file(self, file: str) -> None:
        """Forget a file that was not completed."""
        with self._transaction():
            self._forget_file(file)

    def file(self, owner: str, id_: str) -> StoredFile | None:
        """A client's file."""
        found = self._files("id = ? AND owner = ? AND is_whole", (id_, owner))
        return found[0] if found else None

    def files(
        self, owner: str, purpose: str, after: str, limit: int, *, oldest_first: bool = False
    ) -> list[StoredFile]:
        """A client's files, the newest first, from behind the one with the id `after`."""
        where, values = self._page("files", owner, after, ">" if oldest_first else "<")
        if purpose:
            where, values = f"{where} AND purpose = ?", (*values, purpose)
        order = "ASC" if oldest_first else "DESC"
        return self._files(
            f"{where} AND is_whole ORDER BY created_at {order}, id {order} LIMIT ?",
            (*values, limit),
        )

    def _files(self, where: str, values: tuple[Any, ...]) -> list[StoredFile]:
        names = _FILE.split(", ")
        rows = self._db.execute(f"SELECT {_FILE} FROM files WHERE {where}", values)  # noqa: S608
        return [StoredFile(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]

    def _page(
        self, table: str, owner: str, after: str, beyond: str = "<"
    ) -> tuple[str, tuple[Any, ...]]:
        if not after:
            return "owner = ?", (owner,)
        last = f"(SELECT created_at, id FROM {table} WHERE id = ? AND owner = ?)"  # noqa: S608
        return f"owner = ? AND (created_at, id) {beyond} {last}", (owner, after, owner)

    def read(self, file: str, place: int) -> tuple[bytes, int] | None:
        """Some of a file's content and the next place, from the place 0 on; None at its end."""
        (batch,) = self._db.execute("SELECT batch FROM files WHERE id = ?", (file,)).fetchone() or (
            None,
        )
        if batch is None:
            return None
        if not batch:
            row = self._db.execute(
                "SELECT content FROM parts WHERE file = ? AND number = ?", (file, place)
            ).fetchone()
            return None if row is None else (row[0], place + 1)
        is_output = self._db.execute(
            "SELECT 1 FROM batches WHERE id = ? AND output_file_id = ?", (batch, file)
        ).fetchone()
        wanted = f"state = {State.DONE:d}" if is_output else f"state > {State.DONE:d}"
        rows = self._db.execute(
            "SELECT number, result FROM lines WHERE batch = ? AND number > ? "  # noqa: S608
            f"AND {wanted} ORDER BY number",
            (batch, place),
        )
        content = bytearray()
        for number, result in rows:
            content += result
            place = number
            if len(content) >= PART_BYTES:
                break
        rows.close()
        return (bytes(content), place) if content else None

    def delete_file(self, owner: str, id_: str) -> bool:
        """Delete a client's file, and with a result's the lines that it consists of. False if there
        is none; raises `BusyFileError` while a batch needs it."""
        found = self.file(owner, id_)
        if found is None:
            return False
        with self._transaction():
            is_needed = self._db.execute(
                "SELECT 1 FROM batches WHERE input_file_id = ? AND status = ?", (id_, LIVE)
            ).fetchone()
            if is_needed:
                raise BusyFileError
            self._delete(id_)
        return True

    def _delete(self, file: str) -> None:
        for column, wanted in (("output_file_id", "="), ("error_file_id", ">")):
            self._db.execute(
                f"DELETE FROM lines WHERE state {wanted} {State.DONE:d} "  # noqa: S608
                f"AND batch IN (SELECT id FROM batches WHERE {column} = ?)",
                (file,),
            )
        self._forget_file(file)

    def _forget_file(self, file: str) -> None:
        """The file alone, with what was sent of it."""
        self._db.execute("DELETE FROM parts WHERE file = ?", (file,))
        self._db.execute("DELETE FROM files WHERE id = ?", (file,))

    # Batches

    def create(
        self,
        owner: str,
        file: str,
        endpoint: str,
        window: tuple[str, float],
        metadata: Mapping[str, str],
        now: float,
        key: str = "",
    ) -> Batch:
        """A batch of a client's file, which exists. `window` is the time that it may take, as its
        client wrote it and in seconds; `key` is the id of its key. One with an invalid line fails,
        and sends none."""
        id_ = f"batch_{secrets.token_hex(8)}"
        problems: list[LineProblem] = []
        parts = self._db.execute(
            "SELECT content FROM parts WHERE file = ? ORDER BY number", (file,)
        )
        with self._transaction():
            lines = read_lines((content for (content,) in parts), endpoint, problems)
            total = 0
            for total, line in enumerate(lines, start=1):  # noqa: B007  # the last number
                self._db.execute(
                    "INSERT INTO lines (batch, custom_id, model, body) VALUES (?, ?, ?, ?)",
                    (id_, line.custom_id, line.model, line.body),
                )
            parts.close()
            if problems:
                self._db.execute("DELETE FROM lines WHERE batch = ?", (id_,))
                total = 0
            errors = [problem.as_json() for problem in problems]
            text, window_s = window
            ended_at = int(now) if errors else None
            values: tuple[Any, ...] = (
                *(id_, owner, key, endpoint, file, text, "failed" if errors else LIVE, int(now)),
                *(int(now + window_s), ended_at, json.dumps(dict(metadata)), json.dumps(errors)),
                *(total, 0, 0, None, None),
            )
            marks = ", ".join("?" * len(values))
            self._db.execute(f"INSERT INTO batches ({_BATCH}) VALUES ({marks})", values)  # noqa: S608
        (found,) = self._batches("id = ?", (id_,), now)
        return found

    def batch(self, owner: str, id_: str, now: float) -> Batch | None:
        """A client's batch."""
        found = self._batches("id = ? AND owner = ?", (id_, owner), now)
        return found[0] if found else None

    def batches(self, owner: str, after: str, limit: int, now: float) -> list[Batch]:
        """A client's batches, the newest first, from behind the one with the id `after`."""
        where, values = self._page("batches", owner, after)
        return self._batches(
            f"{where} ORDER BY created_at DESC, id DESC LIMIT ?", (*values, limit), now
        )

    def _batches(self, where: str, values: tuple[Any, ...], now: float) -> list[Batch]:
        rows = self._db.execute(f"SELECT {_BATCH} FROM batches WHERE {where}", values)  # noqa: S608
        found = []
        for row in rows.fetchall():
            named = dict(zip(_BATCH.split(", "), row, strict=True))
            over_s = max(1.0, min(RATE_S, now - named["created_at"]))
            (ended,) = self._db.execute(
                "SELECT COUNT(*) FROM lines WHERE batch = ? AND ended_at > ?",
                (named["id"], now - over_s),
            ).fetchone()
            found.append(Batch(**named, per_s=ended / over_s))
        return found

    def cancel(self, owner: str, id_: str, now: float) -> Batch | None:
        """End a client's batch at once; what has a result keeps it. One that ended stays so."""
        with self._transaction():
            live = self._db.execute(
                "SELECT 1 FROM batches WHERE id = ? AND owner = ? AND status = ?",
                (id_, owner, LIVE),
            ).fetchone()
            if live:
                message = "The batch was cancelled before this request was answered."
                self._leave(id_, "batch_cancelled", message)
                self._end(id_, "cancelled", now)
        return self.batch(owner, id_, now)

    def expire(self, now: float) -> list[str]:
        """End the batches whose time has passed; their ids."""
        rows = self._db.execute(
            "SELECT id FROM batches WHERE status = ? AND expires_at <= ?", (LIVE, now)
        )
        late = [id_ for (id_,) in rows.fetchall()]
        message = "This request could not be answered within the completion window."
        for id_ in late:
            with self._transaction():
                self._leave(id_, "batch_expired", message)
                self._end(id_, "expired", now)
        return late

    def fail_without_key(self, opens: Callable[[str], bool], now: float) -> list[str]:
        """End the batches whose key, by its id, opens no more; their ids. What has a result keeps
        it."""
        rows = self._db.execute(
            "SELECT id, key FROM batches WHERE status = ? AND key <> ''", (LIVE,)
        )
        found = [(id_, key) for id_, key in rows.fetchall() if not opens(key)]
        for id_, key in found:
            message = f"The API key {key} of this batch has expired or was revoked."
            problem = LineProblem(code="invalid_api_key", message=message)
            with self._transaction():
                self._leave(id_, problem.code, message)
                self._end(id_, "failed", now)
                self._db.execute(
                    "UPDATE batches SET errors = ? WHERE id = ?",
                    (json.dumps([problem.as_json()]), id_),
                )
        return [id_ for id_, _ in found]

    def forget(self, before: float) -> int:
        """Delete what ended before that time, and files that no batch has used since; returns the
        number of batches."""
        rows = self._db.execute(
            "SELECT id, output_file_id, error_file_id, input_file_id FROM batches "
            "WHERE ended_at < ?",
            (before,),
        )
        old = rows.fetchall()
        for id_, *files in old:
            with self._transaction():
                for file in files:
                    self._forget_file(file)
                self._db.execute("DELETE FROM lines WHERE batch = ?", (id_,))
                self._db.execute("DELETE FROM batches WHERE id = ?", (id_,))
        with self._transaction():
            unused = (
                "SELECT id FROM files WHERE created_at < ? AND batch = '' AND id NOT IN "
                "(SELECT input_file_id FROM batches)"
            )
            self._db.execute(f"DELETE FROM parts WHERE file IN ({unused})", (before,))  # noqa: S608
            self._db.execute(f"DELETE FROM files WHERE id IN ({unused})", (before,))  # noqa: S608
        return len(old)

    def _leave(self, batch: str, code: str, message: str) -> None:
        """The lines without a result get none any more."""
        rows = self._db.execute(
            "SELECT number, custom_id FROM lines WHERE batch = ? AND state < ?", (batch, State.DONE)
        )
        left = [
            (State.LEFT, unanswered(request_id(batch, number), custom_id, code, message), number)
            for number, custom_id in rows.fetchall()
        ]
        self._db.executemany(
            "UPDATE lines SET state = ?, result = ?, body = NULL WHERE number = ?", left
        )

    def _end(self, batch: str, status: str, now: float) -> None:
        """The batch has ended: its results are files."""
        owner, output = self._db.execute(
            "SELECT owner, id FROM batches WHERE id = ?", (batch,)
        ).fetchone()
        files: list[str | None] = []
        for wanted, name in (("=", "output"), (">", "errors")):
            (size,) = self._db.execute(
                f"SELECT SUM(LENGTH(result)) FROM lines WHERE batch = ? "  # noqa: S608
                f"AND state {wanted} {State.DONE:d}",
                (batch,),
            ).fetchone()
            if not size:
                files.append(None)
                continue
            id_ = f"file-{secrets.token_hex(12)}"
            files.append(id_)
            self._db.execute(
                f"INSERT INTO files ({_FILE}, batch, is_whole) "  # noqa: S608  # our own names
                "VALUES (?, ?, ?, 'batch_output', ?, ?, ?, 1)",
                (id_, owner, f"{output}_{name}.jsonl", size, int(now), batch),
            )
        self._db.execute(
            "UPDATE batches SET status = ?, ended_at = ?, output_file_id = ?, error_file_id = ? "
            "WHERE id = ?",
            (status, int(now), *files, batch),
        )

    # Lines

    def open_models(self) -> list[str]:
        """Up to `MAX_MODELS` models of which lines are open. O(models), however many lines."""
        rows = self._db.execute(
            "WITH RECURSIVE open (model) AS (SELECT MIN(model) FROM lines WHERE state < 2 "
            "UNION ALL SELECT "
            "(SELECT MIN(model) FROM lines WHERE state < 2 AND model > open.model) FROM open "
            "WHERE model IS NOT NULL) SELECT model FROM open WHERE model IS NOT NULL LIMIT ?",
            (MAX_MODELS,),
        )
        return [model for (model,) in rows.fetchall()]

    def claim(self, model: str, count: int, without: Collection[str] = ()) -> list[Line]:
        """Up to `count` waiting lines for a model, those of the oldest batch first: they are about
        to be sent. None are of the clients in `without`, whose lines are passed over: O(these)."""
        others = ""
        if without:
            marks = ", ".join("?" * len(without))
            others = f"AND batch NOT IN (SELECT id FROM batches WHERE owner IN ({marks})) "  # noqa: S608
        with self._transaction():
            rows = self._db.execute(
                "SELECT number, batch, owner, endpoint, custom_id, model, body FROM "  # noqa: S608
                "(SELECT * FROM lines INDEXED BY open_lines WHERE state < 2 AND state = 0 "
                f"AND model = ? {others}ORDER BY number LIMIT ?) AS line "
                "JOIN (SELECT id, owner, endpoint FROM batches) AS batch ON batch.id = line.batch "
                "ORDER BY number",
                (model, *without, count),
            )
            names = ("number", "batch", "owner", "endpoint", "custom_id", "model", "body")
            found = [Line(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]
            self._db.executemany(
                "UPDATE lines SET state = 1 WHERE number = ?",
                [(line.number,) for line in found],
            )
        return found

    def record(self, line: Line, result: bytes, now: float, *, is_error: bool) -> bool:
        """The result of a line that was sent, as `lines` writes it; the last one ends its batch.
        False if it has one already, or its batch has ended."""
        state = State.FAILED if is_error else State.DONE
        with self._transaction():
            recorded = self._db.execute(
                "UPDATE lines SET state = ?, result = ?, body = NULL, ended_at = ? "
                "WHERE number = ? AND batch = ? AND state < 2",
                (state, result, now, line.number, line.batch),
            )
            if not recorded.rowcount:
                return False
            counted = "failed" if is_error else "completed"
            self._db.execute(
                f"UPDATE batches SET {counted} = {counted} + 1 WHERE id = ?",  # noqa: S608
                (line.batch,),
            )
            has_more = self._db.execute(
                "SELECT 1 FROM batches WHERE id = ? AND completed + failed < total", (line.batch,)
            ).fetchone()
            if not has_more:
                self._end(line.batch, "completed", now)
        return True
