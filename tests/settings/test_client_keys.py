"""Claims about extproc/settings/client_keys.py."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from extproc.security.known_keys import digest_of
from extproc.settings import SettingsError
from extproc.settings.client_keys import is_client_name, read_client_keys

DIGEST = hashlib.sha256(b"sk-9").hexdigest()


def test_names_and_digests(tmp_path: Path) -> None:
    """Comments and blank lines do not count; a client may have several keys, in either form."""
    file = tmp_path / "keys"
    text = f"# ours\n\nweb  sk-1\nweb sk-2\nbatch\tsha256:{DIGEST} 2026-01-31\n"
    file.write_text(text, encoding="ascii")
    web, again, batch = read_client_keys(file)
    assert (web.name, web.digest, web.key) == ("web", digest_of("sk-1"), "sk-1")
    assert (again.name, again.digest, again.line) == ("web", digest_of("sk-2"), 4)
    assert (batch.name, batch.digest, batch.key) == ("batch", DIGEST, None)
    assert (batch.added, batch.id) == ("2026-01-31", DIGEST[:12])
    assert "sk-1" not in repr(web)


def test_no_key_is_no_mistake(tmp_path: Path) -> None:
    """It lets nobody in, as after the last key was revoked."""
    file = tmp_path / "keys"
    file.write_text("# nobody\n", encoding="ascii")
    assert read_client_keys(file) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("web sk-1\nsk-2\n", ":2: .*name key"),
        ("web sk-1 more\n", ":1: .*name key"),
        ("web sk-1 more yet\n", ":1: .*name key"),
        ("web sk-1\nbatch sk-1\n", ":2: .*already"),
        (f"web sk-9\nbatch sha256:{DIGEST}\n", ":2: .*already"),
        (f"web sha256:{DIGEST[:-1]}\n", "64 hexadecimal"),
        (f"web sha256:{DIGEST} yesterday\n", "date"),
        ("a]]b sk-1\n", "begins with a letter"),
        (f"web sk-{'1' * 510}\n", "512 characters"),
        ("web sk-\u00fc\n", "ASCII"),
        ("web sk-1\n" * 150_000, "1 MiB"),
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
    """The error names it."""
    with pytest.raises(SettingsError, match="no-such"):
        read_client_keys(tmp_path / "no-such")


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        *(("web", True), ("team/a@b.c:1_2+3-4", True), ("9", True), ("x" * 100, True)),
        *(("", False), ("*", False), ("x" * 101, False), ("-x", False), ("a b", False)),
        *(("a]]", False), ("ä", False), ("a\n", False)),
    ],
)
def test_names(name: str, may_be: bool) -> None:
    """They are part of a header, of a script and of lines; `*` stands for others in limits."""
    assert is_client_name(name) is may_be


def test_when_a_key_expires(tmp_path: Path) -> None:
    """At a time with its zone, or at the end of a day by UTC."""
    file = tmp_path / "keys"
    file.write_text(
        f"web sha256:{DIGEST} 2026-01-31 expires=2026-12-31\n"
        "web sk-1 expires=2027-01-01T02:00:00+02:00\n"
        "batch sk-2\n"
    )
    hashed, plain, unending = read_client_keys(file)
    assert hashed.added == "2026-01-31" and hashed.ends_at == plain.ends_at == 1_798_761_600
    assert plain.key == "sk-1" and unending.ends_at is None


@pytest.mark.parametrize(
    "text",
    [
        *("2026-13-01", "tomorrow", "2026-12-31T18:00:00", "", "9999-12-31"),
        "2026-12-31T18:00:00+99:00",
    ],
)
def test_what_is_no_end(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"web sk-1\nbatch sk-2 expires={text}\n")
    with pytest.raises(SettingsError, match=r":2: .*after expires= write a date"):
        read_client_keys(file)
