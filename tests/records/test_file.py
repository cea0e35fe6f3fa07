"""Claims about extproc/records/file.py: what it wrote it finds, and it stays within its size."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from extproc.records.file import CHUNK_BYTES, RecordFile
from extproc.records.request_record import RequestRecord


def request(number: int, **changes: Any) -> RequestRecord:
    return RequestRecord(
        exchange_id=f"e{number}",
        ended_at=float(number),
        duration_s=1.0,
        outcome="served",
        **changes,
    )


def found(file: RecordFile, since: float = 0.0, mention: bytes = b"") -> list[RequestRecord]:
    return list(file.newest_first(lambda line: mention in line, since))


def test_what_was_written_is_read_newest_first(tmp_path: Path) -> None:
    """As it was, by whoever opens it next; and only the one who runs the picker may read it."""
    path = tmp_path / "records.jsonl"
    assert found(RecordFile(path, 10_000)) == []
    RecordFile(path, 10_000).write([request(1, client="ä\n"), request(2)])
    RecordFile(path, 10_000).write([request(3)])
    assert found(RecordFile(path, 10_000)) == [request(3), request(2), request(1, client="ä\n")]
    assert found(RecordFile(path, 10_000), since=2.0) == [request(3), request(2)]
    assert found(RecordFile(path, 10_000), mention=b'"e1"') == [request(1, client="ä\n")]
    assert path.stat().st_mode & 0o777 == 0o600


def test_both_files_stay_below_the_size(tmp_path: Path) -> None:
    """The older half goes."""
    path, size = tmp_path / "records.jsonl", 20_000
    file = RecordFile(path, size)
    for number in range(1, 1001):
        file.write([request(number)])
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= size
    kept = [record.ended_at for record in found(file)]
    assert kept == [float(number) for number in range(1000, 1000 - len(kept), -1)]
    assert len(kept) > 100


def test_lines_longer_than_a_chunk_and_across_chunks(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "records.jsonl", 100 * CHUNK_BYTES)
    sizes = [CHUNK_BYTES // 3, 2 * CHUNK_BYTES, 10, CHUNK_BYTES - 200]
    records = [request(number, path="x" * size) for number, size in enumerate(sizes, 1)]
    file.write(records)
    assert found(file) == records[::-1]


def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    """Of a picker that was killed within it, or that says something else: the next one is a line of
    its own."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'[1]\nnull\n{"other": 1}\n{"exchange_id":"e')
    file = RecordFile(path, 10_000)
    file.write([request(1)])
    assert found(file) == [request(1)]


def test_a_full_disk_is_an_error_and_harms_no_other_line(tmp_path: Path) -> None:
    """The limit of a process on the size of files stands for the disk: a part is written."""
    path = tmp_path / "records.jsonl"
    file = RecordFile(path, 1_000_000)
    file.write([request(1)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file.write([request(2), request(3)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.write([request(2), request(3)])
    assert found(file) == [request(3), request(2), request(1)]
