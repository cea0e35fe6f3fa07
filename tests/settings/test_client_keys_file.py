"""Claims about extproc/settings/client_keys_file.py."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.security.known_keys import digest_of
from extproc.settings import SettingsError, client_keys_file
from extproc.settings.client_keys import read_client_keys
from extproc.settings.client_keys_file import (
    KeysFileError,
    NoSuchKeyError,
    add_key,
    new_key,
    revoke_keys,
    rotate_key,
)

DAY = "2026-01-31"


def test_a_key_that_is_added_is_in_the_file_as_its_digest(tmp_path: Path) -> None:
    """In a file for its owner alone, which is made if it is missing. Nothing is left beside it."""
    file = tmp_path / "keys"
    key = new_key()
    entry = add_key(file, "web", key, DAY)
    assert file.read_text() == f"web sha256:{digest_of(key)} {DAY}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (found,) = read_client_keys(file)
    assert (found.name, found.digest, found.added) == ("web", entry.digest, DAY)
    assert os.listdir(tmp_path) == ["keys"]
    assert len({new_key() for _ in range(100)}) == 100


def test_other_lines_stay_as_they_are(tmp_path: Path) -> None:
    """Comments, plain keys, an end without a newline; and who may read it, but for others."""
    file = tmp_path / "keys"
    file.write_text("# ours\nweb sk-1\n\nbatch sk-2")
    file.chmod(0o644)
    key = new_key()
    add_key(file, "web", key, DAY)
    line = f"web sha256:{digest_of(key)} {DAY}\n"
    assert file.read_text() == f"# ours\nweb sk-1\n\nbatch sk-2\n{line}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    (revoked,) = revoke_keys(file, "batch")
    assert revoked.digest == digest_of("sk-2")
    assert file.read_text() == f"# ours\nweb sk-1\n\n{line}"
    assert len(revoke_keys(file, "web", digest_of(key)[:6])) == 1
    assert file.read_text() == "# ours\nweb sk-1\n\n"


def test_the_last_key_that_is_revoked_leaves_a_word(tmp_path: Path) -> None:
    """So that the file is not taken for one that was cut. A key that is added takes it away."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n# ours")
    revoke_keys(file, "web")
    assert file.read_text() == "# ours\nnone\n" and read_client_keys(file) == ()
    key = new_key()
    add_key(file, "web", key, DAY)
    assert file.read_text() == f"# ours\nweb sha256:{digest_of(key)} {DAY}\n"
    file.write_text("none\nweb sk-1\n")
    with pytest.raises(SettingsError, match=r":1.*no keys"):
        read_client_keys(file)


def test_a_link_stays_one(tmp_path: Path) -> None:
    """The file that it leads to changes, as where a folder of secrets is mounted."""
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "keys", tmp_path / "keys"
    link.symlink_to(file)
    add_key(link, "web", new_key(), DAY)
    assert link.is_symlink() and len(read_client_keys(file)) == 1


def test_what_cannot_be_added(tmp_path: Path) -> None:
    """Is said without a key, and the file stays as it is."""
    file = tmp_path / "keys"
    key = new_key()
    add_key(file, "web", key, DAY)
    before = file.read_bytes()
    for name, wrong in (
        ("a b", new_key()),
        ("*", new_key()),
        ("web", "short"),
        ("web", f"{key} {key}"),
        ("web", "sha256:" + "0" * 64),
        ("batch", key),
        ("batch", "\u00fc" * 30),
    ):
        with pytest.raises(KeysFileError) as caught:
            add_key(file, name, wrong, DAY)
        assert wrong not in str(caught.value)
    file.write_bytes(before + b"nonsense\n")
    with pytest.raises(SettingsError, match=":2"):
        add_key(file, "web", new_key(), DAY)
    with pytest.raises(KeysFileError, match="folder"):
        add_key(tmp_path / "no" / "such", "web", key, DAY)


def test_what_cannot_be_revoked(tmp_path: Path) -> None:
    """A client without a key, an id that is none of its keys, and one that is several."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\nweb sk-2\n")
    for name, key_id in (("nobody", None), ("web", "ffffffffffff")):
        with pytest.raises(NoSuchKeyError, match=name):
            revoke_keys(file, name, key_id)
    with pytest.raises(KeysFileError, match="write more"):
        revoke_keys(file, "web", "")
    assert file.read_text() == "web sk-1\nweb sk-2\n"


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full: the old file stays, and nothing is left beside it."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeysFileError, match="no space left"):
        add_key(file, "web", new_key(), DAY)
    assert file.read_text() == "web sk-1\n" and os.listdir(tmp_path) == ["keys"]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Processes that add keys at the same time: each key is in the file afterwards."""
    file = tmp_path / "keys"
    script = (
        "import sys; from pathlib import Path\n"
        "from extproc.settings.client_keys_file import add_key, new_key\n"
        "for _ in range(10): add_key(Path(sys.argv[1]), sys.argv[2], new_key(), '2026-01-31')\n"
    )
    names = ("a", "b", "c", "d")
    writers = [subprocess.Popen([sys.executable, "-c", script, file, name]) for name in names]
    assert [writer.wait() for writer in writers] == [0] * len(names)
    found = [entry.name for entry in read_client_keys(file)]
    assert {name: found.count(name) for name in names} == dict.fromkeys(names, 10)


def test_a_lock_that_is_never_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not waited for for ever."""
    monkeypatch.setattr(client_keys_file, "LOCK_TIMEOUT_S", 0.0)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(KeysFileError, match="another command"):
            add_key(tmp_path / "keys", "web", new_key(), DAY)
    finally:
        os.close(folder)


def test_rotation_lets_the_old_keys_open_for_a_while(tmp_path: Path) -> None:
    """Those that end sooner, comments and other clients' keys stay as they are."""
    file, new = tmp_path / "keys", new_key()
    soon = f"web sha256:{digest_of('sk-3')} {DAY} expires=2026-02-01"
    file.write_text(
        f"# ours\nweb sk-1\nweb sk-2  expires=2027-01-01\n{soon}\nbatch sk-4\n", encoding="ascii"
    )
    end = "2026-03-01T00:00:00Z"
    added, ending = rotate_key(file, "web", new, DAY, end, "2027-06-30")
    assert [each.digest for each in ending] == [digest_of("sk-1"), digest_of("sk-2")]
    assert {each.expires for each in ending} == {end}
    assert added.expires == "2027-06-30"
    assert file.read_text() == (
        f"# ours\nweb sk-1 expires={end}\nweb sk-2 expires={end}\n{soon}\nbatch sk-4\n"
        f"web sha256:{digest_of(new)} {DAY} expires=2027-06-30\n"
    )
    assert len(read_client_keys(file)) == 5


def test_what_cannot_be_rotated(tmp_path: Path) -> None:
    """Nothing is changed."""
    file = tmp_path / "keys"
    file.write_text("web sk-1", encoding="ascii")
    for name, key, end, expires, problem in (
        ("batch", new_key(), "2026-03-01", "", "no key of 'batch'"),
        ("web", new_key(), "soon", "", "the end must be a date"),
        ("web", new_key(), "2026-03-01", "never", "a key expires at a date"),
        ("web", "short", "2026-03-01", "", "20 to 512"),
    ):
        with pytest.raises(KeysFileError, match=problem):
            rotate_key(file, name, key, DAY, end, expires)
    assert file.read_text() == "web sk-1"
    with pytest.raises(KeysFileError, match="a key expires at a date"):
        add_key(file, "web", new_key(), DAY, "never")
    rotate_key(file, "web", new_key(), DAY, "2026-03-01")
    assert file.read_text().startswith("web sk-1 expires=2026-03-01\nweb sha256:")
