"""Claims about extproc/usage/store.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.store import KEYS, VERSION, UsageError, UsageStore, check_writable

A = UsageKey("a", "chat", "tiny")
B = UsageKey("b", "chat", "large")


def counts(tokens: int) -> UsageCounts:
    return UsageCounts(requests=1, prompt_tokens=tokens, generated_tokens=tokens, slot_s=0.25)


def test_counts_are_added_and_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    for _ in range(2):
        store = UsageStore(path)
        store.add({(3600, A): counts(5), (7200, A): counts(1), (7200, B): counts(100)})
        store.close()
    store = UsageStore(path)
    rows = store.read(0, KEYS, 10)
    assert [(row.key, row.counts.prompt_tokens) for row in rows] == [(B, 200), (A, 12)]
    assert rows[1].counts == UsageCounts(
        requests=4, prompt_tokens=12, generated_tokens=12, slot_s=1.0
    )
    store.close()


def test_rows_are_grouped_and_bounded(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / "usage.db")
    store.add({(3600, A): counts(5), (7200, B): counts(7)})
    assert [row.key for row in store.read(0, ["objective"], 10)] == [UsageKey("", "chat", "", "")]
    assert [row.key for row in store.read(7200, ["client"], 10)] == [UsageKey("b", "", "", "")]
    assert [row.counts.requests for row in store.read(0, [], 10)] == [2]
    assert len(store.read(0, KEYS, 1)) == 1
    store.close()


def test_nothing_is_a_sum_of_nothing(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / "usage.db")
    assert store.read(0, KEYS, 10) == []
    store.close()


def test_old_hours_are_removed(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / "usage.db")
    store.add({(3600, A): counts(5), (7200, B): counts(7)})
    store.forget_before(7000.5)
    assert [row.key for row in store.read(0, KEYS, 10)] == [B]
    store.close()


def test_two_pickers_may_share_a_file(tmp_path: Path) -> None:
    stores = [UsageStore(tmp_path / "usage.db") for _ in range(2)]
    for store in stores:
        store.add({(3600, A): counts(5)})
    assert stores[0].read(0, KEYS, 10)[0].counts.requests == 2
    for store in stores:
        store.close()


@pytest.mark.parametrize("name", ["missing/usage.db", "."])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    for use in (UsageStore, check_writable):
        with pytest.raises(UsageError, match=r"usage\.path"):
            use(tmp_path / name)


def test_a_check_leaves_no_file(tmp_path: Path) -> None:
    """Its owner would be who checks, and the picker may be another user."""
    path = tmp_path / "usage.db"
    check_writable(path)
    assert not list(tmp_path.iterdir())
    UsageStore(path).close()
    check_writable(path)


def test_a_file_of_something_else_is_not_touched(tmp_path: Path) -> None:
    """Nor one of a newer version."""
    path = tmp_path / "notes.txt"
    path.write_text("notes " * 1000)
    with pytest.raises(UsageError, match=r"usage\.path"):
        UsageStore(path)
    assert path.read_text() == "notes " * 1000
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(UsageError, match="newer"):
        UsageStore(newer)


@pytest.mark.parametrize("value", [None, 2**63], ids=["the table refuses", "SQLite cannot hold"])
def test_counts_that_cannot_be_saved_change_nothing(tmp_path: Path, value: int | None) -> None:
    """All or none, so that they can be added again later."""
    path = tmp_path / "usage.db"
    store = UsageStore(path)
    bad = counts(1)
    bad.prompt_tokens = value  # type: ignore[assignment]
    with pytest.raises(UsageError, match="cannot be saved"):
        store.add({(3600, A): counts(5), (3600, B): bad})
    assert store.read(0, KEYS, 10) == []
    store.add({(3600, A): counts(5)})
    assert len(store.read(0, KEYS, 10)) == 1
    store.close()


def test_a_file_of_the_first_version_is_read_on(tmp_path: Path) -> None:
    """Its rows are of tier 1 and cost nothing; a picker of that version that has it open goes on
    writing."""
    path = tmp_path / "usage.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute(
            "CREATE TABLE usage (hour INTEGER NOT NULL, client TEXT NOT NULL, objective TEXT NOT "
            "NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, rejected INTEGER NOT NULL, "
            "uncounted INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT "
            "NULL, generated_tokens INTEGER NOT NULL, slot_s REAL NOT NULL, "
            "PRIMARY KEY (hour, client, objective, model)) WITHOUT ROWID"
        )
        row = "INSERT INTO usage (hour, client, objective, model, requests, rejected, uncounted, "
        row += "prompt_tokens, cached_tokens, generated_tokens, slot_s) VALUES "
        row += "(3600, 'a', 'chat', 'tiny', 3, 0, 0, 5, 0, 6, 1.5) ON CONFLICT DO UPDATE SET "
        row += "requests = requests + excluded.requests"
        file.execute(row)
        file.execute("PRAGMA user_version = 1")
        file.commit()
        store = UsageStore(path)
        file.execute(row)
        file.commit()
    store.add({(3600, A._replace(tier="2")): UsageCounts(requests=1, cost=0.5)})
    rows = store.read(0, KEYS, 10)
    assert [(row.key.tier, row.counts.requests, row.counts.cost) for row in rows] == [
        ("1", 6, 0.0),
        ("2", 1, 0.5),
    ]
    store.close()
    again = UsageStore(path)
    assert len(again.read(0, KEYS, 10)) == 2
    again.close()
