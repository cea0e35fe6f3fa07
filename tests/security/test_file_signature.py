"""Claims about extproc/security/file_signature.py."""

from __future__ import annotations

from pathlib import Path

from extproc.security.file_signature import Changes, read_signature


def test_a_change_is_reported_when_its_signature_is_the_same_twice_and_only_once() -> None:
    changes = Changes("old")
    told = [
        changes.has_settled(scrape) for scrape in ("old", "new", "newer", "newer", "newer", "old")
    ]
    assert told == [False, False, False, True, False, False]
    assert changes.has_settled("old")


def test_what_was_taken_back_at_once_is_no_change() -> None:
    changes = Changes("old")
    assert not any(changes.has_settled(scrape) for scrape in ("new", "old", "old"))


def test_a_name_that_leads_nowhere_has_no_scrape(tmp_path: Path) -> None:
    """And content of another length is another look."""
    file = tmp_path / "file"
    assert read_signature(file) is None
    file.write_text("one")
    before = read_signature(file)
    file.write_text("three")
    assert before is not None and read_signature(file) not in (None, before)
