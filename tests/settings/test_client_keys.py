"""Claims about extproc/settings/client_keys.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.settings import SettingsError
from extproc.settings.client_keys import read_client_keys


def test_names_by_keys(tmp_path: Path) -> None:
    """Comments and blank lines do not count; a client may have several keys."""
    file = tmp_path / "keys"
    file.write_text("# ours\n\nweb  sk-1\nweb sk-2\nbatch\tsk-3\n", encoding="ascii")
    assert read_client_keys(file) == {"sk-1": "web", "sk-2": "web", "sk-3": "batch"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it contains no key"),
        ("web sk-1\nsk-2\n", ":2: .*name key"),
        ("web sk-1 more\n", ":1: .*name key"),
        ("web sk-1\nbatch sk-1\n", ":2: .*already"),
        ("web sk-\u00fc\n", "ASCII"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path: Path, text: str, problem: str) -> None:
    """And no key is in what is said."""
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=problem) as caught:
        read_client_keys(file)
    assert "sk-" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    """Told by its name."""
    with pytest.raises(SettingsError, match="no-such"):
        read_client_keys(tmp_path / "no-such")
