"""Ended requests in a file: lines of JSON, without bodies, prompts or keys.

When the file has half of its size, it becomes FILE.1 in place of the one before, so both together
stay below it. A line that cannot be read is left out: the disk may have been full within it.
Blocks on the disk: for a thread of its own.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from extproc.records.request_record import RequestRecord

CHUNK_BYTES: Final = 1 << 20


class RecordFile:
    """Belongs to one thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._before = path.with_name(f"{path.name}.1")
        self._max_bytes = max_bytes
        self._is_cut = False
        """Whether the last line may be incomplete."""

    def write(self, records: Iterable[RequestRecord]) -> None:
        """Append these; raises `OSError`, then some of them may be there."""
        lines = b"".join(_line(record) for record in records)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(file).st_size
            if self._is_cut or (size and not self._ends_with_line(size)):
                lines = b"\n" + lines
            self._is_cut = True
            written = 0
            while written < len(lines):
                written += os.write(file, lines[written:])
            self._is_cut = False
        finally:
            os.close(file)
        if size + len(lines) >= self._max_bytes // 2:
            self._path.replace(self._before)

    def _ends_with_line(self, size: int) -> bool:
        with self._path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def newest_first(
        self, is_wanted: Callable[[bytes], bool], since: float
    ) -> Iterator[RequestRecord]:
        """The records that ended at this Unix time or later. `is_wanted` is asked about each line
        before it is parsed. Raises `OSError`."""
        for path in (self._path, self._before):
            for line in _lines_backwards(path):
                if not is_wanted(line):
                    continue
                record = _parsed(line)
                if record is None:
                    continue
                if record.ended_at < since:
                    return
                yield record


def _line(record: RequestRecord) -> bytes:
    return json.dumps(record.as_json(), separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> RequestRecord | None:
    try:
        return RequestRecord.from_json(json.loads(line))
    except (ValueError, TypeError, AttributeError):
        return None


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end = file.seek(0, os.SEEK_END)
        rest = b""
        while end:
            start = max(0, end - CHUNK_BYTES)
            file.seek(start)
            lines = (file.read(end - start) + rest).split(b"\n")
            rest, end = lines[0], start
            yield from filter(None, reversed(lines[1:]))
        if rest:
            yield rest
