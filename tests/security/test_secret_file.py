"""Claims about extproc/security/secret_file.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from extproc.security.secret_file import (
    MAX_SECRET_BYTES,
    SecretFileError,
    authorization_of,
    is_header_value,
    is_sendable_key,
    read_secret,
)


def test_blanks_around_a_secret_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"  s3cret \r\n")
    assert read_secret(file) == "s3cret"
    file.write_bytes(b" \n")
    assert read_secret(file) == ""


def test_a_file_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text("at-home")
    assert read_secret(Path("~/secret")) == "at-home"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"s3cret\xff", "it is not text"),
        (b"s3cret" * MAX_SECRET_BYTES, "more than 16 KiB"),
    ],
)
def test_what_is_no_secret_is_named_and_not_shown(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(SecretFileError, match=said) as caught:
        read_secret(file)
    assert str(file) in str(caught.value) and "s3cret" not in str(caught.value)


def test_the_longest_one_is_read(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"x" * MAX_SECRET_BYTES)
    assert len(read_secret(file)) == MAX_SECRET_BYTES


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match="missing cannot be read: no such file"):
        read_secret(tmp_path / "missing")
    with pytest.raises(SecretFileError, match="cannot be read: is a directory"):
        read_secret(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert read_secret(tmp_path / "pipe") == ""  # nobody writes to it


@pytest.mark.parametrize(
    ("secret", "fits"),
    [("s3cret", True), ("two words", True), ("", False), ("a\nb", False), ("schlüssel", False)],
)
def test_what_a_header_can_carry(secret: str, fits: bool) -> None:
    assert is_header_value(secret) == fits


def test_a_key_must_fit_into_one_word_of_a_header() -> None:
    assert is_sendable_key("sk-1~!") and authorization_of("sk-1") == "Bearer sk-1"
    for key in ("", "two words", "line\nbreak", "tab\t", "caf\u00e9", "nul\0", "del\x7f"):
        assert not is_sendable_key(key)
