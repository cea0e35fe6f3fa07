"""Claims about extproc/cli/commands/keys.py."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from extproc.security.known_keys import digest_of
from extproc.settings.client_keys import read_client_keys
from tests.cli.typed_command import Command, Run, parsed

OWN = "sk-0123456789-abcdefghij"


def test_a_key_is_shown_once(coxswain: Command, tmp_path: Path) -> None:
    """Alone on stdout, so that a script can take it; the file and the list have only its digest."""
    file = str(tmp_path / "keys")
    added = coxswain("keys", "add", "web", "--file", file)
    assert added.code == 0
    key = added.out.removesuffix("\n")
    assert key.startswith("sk-") and len(key) > 40 and key not in added.err
    (entry,) = read_client_keys(Path(file))
    assert entry.digest == digest_of(key) and entry.key is None
    listed = coxswain("keys", "list", "--file", file)
    assert listed.code == 0 and key not in listed.out + listed.err
    assert "web" in listed.out and entry.id in listed.out and entry.added in listed.out


def test_the_file_is_that_of_the_settings(coxswain: Command, tmp_path: Path) -> None:
    """Unless another one is given."""
    file, config = tmp_path / "keys", tmp_path / "coxswain.yaml"
    config.write_text(f"clients: {{keys_file: {file}}}\n")
    assert coxswain("keys", "add", "web", "--config", str(config)).code == 0
    assert len(read_client_keys(file)) == 1
    neither = coxswain("keys", "list")
    assert neither.code == 2 and "clients.keys_file" in neither.err


def test_keys_are_revoked_by_name_or_one_by_its_id(coxswain: Command, tmp_path: Path) -> None:
    """As a client changes from one key to the next."""
    file = tmp_path / "keys"
    at = ("--file", str(file))
    first, second = (coxswain("keys", "add", "web", *at).out.strip() for _ in range(2))
    coxswain("keys", "add", "batch", *at)
    ended = coxswain("keys", "revoke", "web", "--id", digest_of(first)[:12], *at)
    assert ended.code == 0 and digest_of(first)[:12] in ended.out
    assert digest_of(second) in {entry.digest for entry in read_client_keys(file)}
    assert coxswain("keys", "revoke", "web", *at).code == 0
    assert [entry.name for entry in read_client_keys(file)] == ["batch"]
    again = coxswain("keys", "revoke", "web", *at)
    assert again.code == 4 and "no key of 'web'" in again.err


async def test_json(run: Run, tmp_path: Path) -> None:
    """Each command has it; only `add` shows the key, and not one that it was given."""
    at = ("--file", str(tmp_path / "keys"), "-o", "json")
    added = parsed(await run("keys", "add", "web", *at))
    entry = {field: added[field] for field in ("name", "id", "added", "expires", "is_hashed")}
    assert entry["name"] == "web" and digest_of(added["key"]).startswith(entry["id"])
    assert parsed(await run("keys", "list", *at)) == {"keys": [entry], "total": 1}
    assert parsed(await run("keys", "revoke", "web", *at)) == {"keys": [entry], "total": 1}
    given = await run("keys", "add", "web", "--stdin", *at, stdin=f"{OWN}\n")
    assert "key" not in json.loads(given.stdout) and OWN not in given.output
    assert parsed(given)["id"] == digest_of(OWN)[:12]


async def test_mistakes_are_said_without_the_key(run: Run, tmp_path: Path) -> None:
    """A bad name, a short key, a key that is there already, a folder that is not."""
    file = tmp_path / "keys"
    at = ("--file", str(file))
    assert (await run("keys", "add", "a b", *at)).exit_code == 1
    assert (await run("keys", "add", "web", "--stdin", *at, stdin="short\n")).exit_code == 1
    assert (await run("keys", "add", "web", "--stdin", *at, stdin=OWN)).exit_code == 0
    again = await run("keys", "add", "batch", "--stdin", *at, stdin=OWN)
    assert again.exit_code == 1 and "already" in again.output and OWN not in again.output
    nowhere = await run("keys", "add", "web", "--file", str(tmp_path / "no" / "keys"))
    assert nowhere.exit_code == 1 and "folder" in nowhere.output


def test_who_has_keys_in_the_file_learns_what_to_do(coxswain: Command, tmp_path: Path) -> None:
    """`list` shows neither the key, nor asks for it on a command line."""
    file = tmp_path / "keys"
    file.write_text(f"web {OWN}\n")
    listed = coxswain("keys", "list", "--file", str(file))
    assert listed.out.split()[-1] == "key" and "--stdin" in listed.err
    assert OWN not in listed.out + listed.err
    broken = tmp_path / "broken"
    broken.write_text("sk-secret\n")
    listed = coxswain("keys", "list", "--file", str(broken))
    assert listed.code == 2 and ":1" in listed.err and "sk-" not in listed.err


@pytest.mark.parametrize("command", ["add", "list", "revoke", "rotate"])
def test_each_has_help_with_an_example(coxswain: Command, command: str) -> None:
    """In words."""
    helped = coxswain("keys", command, "--help")
    assert helped.code == 0 and f"coxswain keys {command}" in helped.out
    assert "<str>" not in helped.out


def test_rotation_shows_the_new_key_once_and_when_the_old_ones_end(
    coxswain: Command, tmp_path: Path
) -> None:
    """For a day, or as long as is asked for; a table says which have expired."""
    file = tmp_path / "keys"
    at = ("--file", str(file))
    file.write_text(f"web {OWN} expires=2020-01-01\n")
    first = coxswain("keys", "add", "web", "--expires", "2090-12-31", *at)
    assert "expires at 2090-12-31" in first.err
    rotated = coxswain("keys", "rotate", "web", "--overlap", "2h", "--expires", "90d", *at)
    assert rotated.code == 0 and rotated.out.startswith("sk-")
    assert f"key {digest_of(first.out.strip())[:12]} of web expires at" in rotated.err
    listed = coxswain("keys", "list", *at)
    assert "expired 2020-01-01" in listed.out and rotated.out.strip() not in listed.out
    assert max(map(len, listed.out.splitlines())) < 80 - 10, "a longer name fits a terminal, too"
    _, old, new = read_client_keys(file)
    assert old.ends_at is not None and new.ends_at is not None
    now = time.time()
    assert now < old.ends_at <= now + 7200 and now + 7200 < new.ends_at <= now + 90 * 86_400
    nobody = coxswain("keys", "rotate", "batch", *at)
    assert nobody.code == 4 and "keys add" in nobody.err
    for mistake in ("soon", "2026-12-31T10:00"):
        wrong = coxswain("keys", "add", "web", "--expires", mistake, *at)
        assert wrong.code == 2 and "2026-12-31T18:00:00Z" in wrong.err
    far = coxswain("keys", "rotate", "web", "--overlap", "9999999d", *at)
    assert far.code == 2 and "too far away" in far.err


async def test_rotation_as_json(run: Run, tmp_path: Path) -> None:
    """With the keys that end; a key that was given is not shown."""
    at = ("--file", str(tmp_path / "keys"), "-o", "json")
    before = parsed(await run("keys", "add", "web", *at))
    rotated = await run("keys", "rotate", "web", "--stdin", *at, stdin=f"{OWN}\n")
    found = parsed(rotated)
    assert OWN not in rotated.output and found["expires"] is None
    assert [each["id"] for each in found["ending"]] == [before["id"]]
    assert found["ending"][0]["expires"].endswith("Z")
    assert "key" in parsed(await run("keys", "rotate", "web", *at))
