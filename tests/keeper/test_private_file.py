"""Claims about extproc/keeper/private_file.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.keeper.private_file import write_private


def test_a_file_is_replaced_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("before, and longer")
    path.chmod(0o644)
    write_private(path, "after")
    assert path.read_text() == "after" and path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


def test_where_nothing_can_be_written_the_file_stays(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        write_private(tmp_path / "missing" / "model.json", "after")
