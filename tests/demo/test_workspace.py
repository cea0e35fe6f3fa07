from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from extproc.demo.workspace import LOCK, NEW_S, PREFIX, workspace


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def folder(parent: Path, name: str, *, age_s: float) -> Path:
    made = parent / f"{PREFIX}{name}"
    made.mkdir()
    (made / LOCK).touch()
    long_ago = made.stat().st_mtime - age_s
    os.utime(made, (long_ago, long_ago))
    return made


def test_a_workspace_is_gone_after_its_run_also_when_that_failed(temporary: Path) -> None:
    def fail_in_it() -> None:
        with workspace() as made:
            (made / "model").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_it()
    assert not list(temporary.iterdir())


def test_what_a_killed_run_left_is_removed_by_the_next(temporary: Path) -> None:
    left = folder(temporary, "killed", age_s=2 * NEW_S)
    held = folder(temporary, "running", age_s=2 * NEW_S)
    starting = folder(temporary, "starting", age_s=0)
    stranger = temporary / "other"
    stranger.mkdir()
    with (held / LOCK).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with workspace():
            assert not left.exists()
            assert held.exists() and starting.exists() and stranger.exists()
