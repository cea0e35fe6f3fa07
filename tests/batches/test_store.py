"""Claims about extproc/batches/store.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from extproc.batches import store as store_module
from extproc.batches.lines import answered
from extproc.batches.store import Batch, BatchStore, BusyFileError, FullError, Line, StoreError

CHAT = "/v1/chat/completions"
DAY = ("24h", 86_400.0)


def content(count: int, model: str = "tiny") -> bytes:
    return b"".join(
        json.dumps(
            {"custom_id": f"{number}", "method": "POST", "url": CHAT, "body": {"model": model}}
        ).encode()
        + b"\n"
        for number in range(count)
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BatchStore]:
    opened = BatchStore(tmp_path / "batches.db")
    yield opened
    opened.close()


def submit(
    store: BatchStore, text: bytes, owner: str = "ann", now: float = 100.0, key: str = ""
) -> Batch:
    file = store.begin_file(owner, "batch", now)
    for at in range(0, len(text), 50):
        store.add_part(file, text[at : at + 50])
    store.end_file(file, "in.jsonl")
    return store.create(owner, file, CHAT, DAY, {"team": "a"}, now, key)


def finish(store: BatchStore, line: Line, now: float = 101.0, status: int = 200) -> bool:
    result = answered(line.id, line.custom_id, status, "q", b"{}")
    return store.record(line, result, now, is_error=status != 200)


def read(store: BatchStore, file: str | None) -> bytes:
    assert file is not None
    found, place = b"", 0
    while part := store.read(file, place):
        text, place = part
        found += text
    return found


def ids(text: bytes) -> list[str]:
    return [json.loads(line)["custom_id"] for line in text.splitlines()]


def test_a_batch_from_its_file_to_its_results(store: BatchStore) -> None:
    batch = submit(store, content(3))
    assert read(store, batch.input_file_id) == content(3)
    assert store.open_models() == ["tiny"]
    lines = store.claim("tiny", 10)
    assert store.claim("tiny", 10) == []
    assert [line.custom_id for line in lines] == ["0", "1", "2"]
    assert finish(store, lines[2]) and finish(store, lines[0], status=400)
    running = store.batch("ann", batch.id, 110.0)
    assert running is not None and running.is_live and running.left == 1
    assert running.as_json()["progress"] == {"left": 1, "lines_per_s": 0.2, "expected_s": 5}
    assert finish(store, lines[1], 105.0)
    ended = store.batch("ann", batch.id, 110.0)
    assert ended is not None
    shown = ended.as_json()
    assert shown["status"] == "completed" and shown["completed_at"] == 105
    assert shown["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert shown["metadata"] == {"team": "a"}
    assert ids(read(store, ended.output_file_id)) == ["1", "2"]
    assert ids(read(store, ended.error_file_id)) == ["0"]
    output = store.file("ann", ended.output_file_id or "")
    assert output is not None and output.bytes == len(read(store, output.id))


def test_a_line_has_one_result(store: BatchStore) -> None:
    batch = submit(store, content(2))
    first, second = store.claim("tiny", 2)
    assert finish(store, first) and not finish(store, first)
    store.cancel("ann", batch.id, 102.0)
    assert not finish(store, second), "it came too late"
    found = store.batch("ann", batch.id, 103.0)
    assert found is not None and found.status == "cancelled" and found.left == 0
    assert ids(read(store, found.output_file_id)) == ["0"]
    left = json.loads(read(store, found.error_file_id))
    assert left["custom_id"] == "1" and left["error"]["code"] == "batch_cancelled"
    again = store.cancel("ann", batch.id, 104.0)
    assert again is not None and again.ended_at == 102


def test_what_was_sent_without_a_result_is_sent_again(tmp_path: Path) -> None:
    """The same ids; what has a result is not. A file that was half sent is forgotten."""
    path = tmp_path / "batches.db"
    store = BatchStore(path)
    batch = submit(store, content(3))
    first, *others = store.claim("tiny", 3)
    finish(store, first)
    half = store.begin_file("ann", "batch", 1.0)
    store.add_part(half, b"{")
    store.close()
    store = BatchStore(path)
    assert store.claim("tiny", 3) == others
    assert store.claim("tiny", 3) == []
    assert store.file("ann", half) is None and read(store, half) == b""
    for line in others:
        finish(store, line)
    ended = store.batch("ann", batch.id, 1.0)
    assert ended is not None and ids(read(store, ended.output_file_id)) == ["0", "1", "2"]
    store.close()


def test_an_invalid_line_fails_the_batch_and_sends_none(store: BatchStore) -> None:
    batch = submit(store, content(1) + b"{\n")
    shown = batch.as_json()
    assert shown["status"] == "failed" and shown["failed_at"] == 100
    assert shown["errors"]["data"][0]["line"] == 2
    assert store.open_models() == []


def test_batches_expire(store: BatchStore) -> None:
    batch = submit(store, content(2))
    (line,) = store.claim("tiny", 1)
    finish(store, line)
    assert store.expire(100 + 86_399.0) == []
    assert store.expire(100 + 86_400.0) == [batch.id]
    found = store.batch("ann", batch.id, 1.0)
    assert found is not None and found.status == "expired"
    assert ids(read(store, found.output_file_id)) == ["0"]
    assert b"batch_expired" in read(store, found.error_file_id)


def test_a_batch_ends_with_its_key(store: BatchStore) -> None:
    """What was answered stays; the error names the key by its id. Others go on."""
    kept = [submit(store, content(1), key=key).id for key in ("", "aaa")]
    batch = submit(store, content(2, model="large"), key="bbb")
    (line,) = store.claim("large", 1)
    finish(store, line)
    assert store.fail_without_key(lambda key: key == "aaa", 200.0) == [batch.id]
    found = store.batch("ann", batch.id, 200.0)
    assert found is not None
    told = found.as_json()
    assert (told["status"], told["failed_at"], told["in_progress_at"]) == ("failed", 200, 100)
    (error,) = told["errors"]["data"]
    assert error["code"] == "invalid_api_key" and "key bbb" in error["message"]
    assert ids(read(store, found.output_file_id)) == ["0"]
    assert json.loads(read(store, found.error_file_id))["error"]["code"] == "invalid_api_key"
    for id_ in kept:
        other = store.batch("ann", id_, 200.0)
        assert other is not None and other.is_live


def test_clients_are_passed_over(store: BatchStore) -> None:
    for owner in ("ann", "bob", "eve"):
        submit(store, content(2), owner)
    assert [line.owner for line in store.claim("tiny", 3, {"ann", "eve"})] == ["bob", "bob"]
    assert [line.owner for line in store.claim("tiny", 3)] == ["ann", "ann", "eve"]


def test_each_client_has_its_own(store: BatchStore) -> None:
    batch = submit(store, content(1))
    assert store.file("bob", batch.input_file_id) is None
    assert store.files("bob", "", "", 10) == [] and store.batches("bob", "", 10, 1.0) == []
    assert store.batch("bob", batch.id, 1.0) is None
    assert store.cancel("bob", batch.id, 1.0) is None
    assert not store.delete_file("bob", batch.input_file_id)
    assert store.open_models() == ["tiny"]


def test_lists_come_in_pages(store: BatchStore) -> None:
    made = [submit(store, content(1), now=float(number)).id for number in range(5)]
    newest = [one.id for one in store.batches("ann", "", 2, 9.0)]
    assert newest == [made[4], made[3]]
    assert [one.id for one in store.batches("ann", newest[-1], 9, 9.0)] == made[2::-1]
    files = store.files("ann", "batch", "", 3)
    assert len(files) == 3
    assert len(store.files("ann", "", files[-1].id, 9)) == 2
    assert store.files("ann", "batch_output", "", 9) == []


def test_oldest_batches_go_first_and_models_apart(store: BatchStore) -> None:
    submit(store, content(2))
    submit(store, content(2, model="large"))
    submit(store, content(2))
    assert sorted(store.open_models()) == ["large", "tiny"]
    lines = store.claim("tiny", 3)
    assert len({line.batch for line in lines[:2]}) == 1
    assert lines[2].batch != lines[0].batch


def test_files_are_deleted(store: BatchStore) -> None:
    batch = submit(store, content(1))
    with pytest.raises(BusyFileError):
        store.delete_file("ann", batch.input_file_id)
    (line,) = store.claim("tiny", 1)
    finish(store, line)
    ended = store.batch("ann", batch.id, 1.0)
    assert ended is not None and ended.output_file_id is not None
    assert store.delete_file("ann", ended.output_file_id)
    assert store.file("ann", ended.output_file_id) is None
    assert read(store, ended.output_file_id) == b""
    assert store.delete_file("ann", batch.input_file_id)


def test_what_ended_long_ago_is_forgotten(store: BatchStore) -> None:
    batch = submit(store, content(1))
    (line,) = store.claim("tiny", 1)
    finish(store, line, 200.0)
    live = submit(store, content(1))
    assert store.forget(200.0) == 0
    assert store.forget(201.0) == 1
    assert store.batch("ann", batch.id, 1.0) is None
    assert [file.id for file in store.files("ann", "", "", 9)] == [live.input_file_id]


def test_the_store_is_bounded(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "batches.db", max_bytes=10)
    file = store.begin_file("ann", "batch", 1.0)
    store.add_part(file, b"x" * 10)
    with pytest.raises(FullError):
        store.add_part(file, b"x")
    store.drop_file(file)
    store.add_part(store.begin_file("ann", "batch", 1.0), b"x" * 10)
    store.close()


def test_a_file_that_is_not_ours_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "batches.db"
    path.write_text("nonsense" * 1000)
    with pytest.raises(StoreError, match=r"batches\.db"):
        BatchStore(path)
    with pytest.raises(StoreError):
        BatchStore(tmp_path / "no" / "folder.db")
    later = tmp_path / "later.db"
    BatchStore(later).close()
    db = sqlite3.connect(later)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="another version"):
        BatchStore(later)


def test_a_second_process_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send the same lines."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.05)
    store = BatchStore(tmp_path / "batches.db")
    with pytest.raises(StoreError, match="locked"):
        BatchStore(tmp_path / "batches.db")
    store.close()
