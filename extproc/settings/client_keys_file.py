"""Adds keys to the file of clients' keys, and takes them out.

A change is written beside the file and then put in its place, so a reader finds the old file or
the new one. Writers exclude each other by a lock on the folder. Lines that a change does not
concern stay as they are. Everything here blocks on the disk.
"""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from extproc.security.known_keys import MAX_KEY_CHARS, digest_of
from extproc.settings.client_keys import (
    EXPIRES,
    HASHED,
    MAX_FILE_BYTES,
    NAME_FORM,
    NONE,
    TIME_FORM,
    ClientKeyEntry,
    is_client_name,
    parse_client_keys,
    read_keys_file,
    unix_time_of,
)

PREFIX: Final = "sk-"
RANDOM_BYTES: Final = 32
MIN_KEY_CHARS: Final = 20
"""Of a key that somebody else made: a shorter one might be guessed from its digest."""
LOCK_TIMEOUT_S: Final = 10.0
_LOCK_POLL_S: Final = 0.05


class KeysFileError(Exception):
    """The file was not changed; `str(error)` says why, and shows no key."""


class NoSuchKeyError(KeysFileError):
    """The file has no such key."""


def new_key() -> str:
    """A random key in the form that clients know."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def add_key(
    file: Path,
    name: str,
    key: str,
    today: str,
    expires: str = "",
    show: Callable[[ClientKeyEntry], None] = lambda _: None,
) -> ClientKeyEntry:
    """Add a key of `name`; the file is created if it is missing, readable by its owner alone.

    `today` is the date that the file will show, `expires` a date or a time with its zone. `show` is
    called when nothing but the change itself is left to do: if it raises an exception, that is
    raised, and no key is added. Raises KeysFileError and SettingsError.
    """
    added = _checked(name, key, today, expires)
    with _locked(file) as place:
        text = read_keys_file(place) if place.exists() else ""
        text = _with_key(text, parse_client_keys(text, file), added, file)
        _replace(place, text, partial(show, added))
    return added


def rotate_key(
    file: Path,
    name: str,
    key: str,
    today: str,
    ends: str,
    expires: str = "",
    show: Callable[[ClientKeyEntry, tuple[ClientKeyEntry, ...]], None] = lambda *_: None,
) -> tuple[ClientKeyEntry, tuple[ClientKeyEntry, ...]]:
    """Add a key of `name`, and let its other keys open until `ends` only, a time with its zone;
    those that end before stay as they are. `expires` is for the new one. `show` is called as that
    of `add_key`, with what is returned.

    Returns the new key and those that end now or later because of it. Raises NoSuchKeyError if the
    name has no key, KeysFileError and SettingsError.
    """
    added = _checked(name, key, today, expires)
    end = unix_time_of(ends)
    if end is None:
        raise KeysFileError(f"the end must be {TIME_FORM}")
    with _locked(file) as place:
        text = read_keys_file(place)
        entries = parse_client_keys(text, file)
        if not any(entry.name == name for entry in entries):
            raise NoSuchKeyError(f"{file} has no key of {name!r}; add one with `coxswain keys add`")
        ending = [
            entry
            for entry in entries
            if entry.name == name and (entry.ends_at is None or entry.ends_at > end)
        ]
        lines = text.splitlines(keepends=True)
        for entry in ending:
            words = [word for word in lines[entry.line - 1].split() if not word.startswith(EXPIRES)]
            lines[entry.line - 1] = f"{' '.join(words)} {EXPIRES}{ends}\n"
        ended = tuple(replace(entry, expires=ends) for entry in ending)
        text = _with_key("".join(lines), entries, added, file)
        _replace(place, text, partial(show, added, ended))
    return added, ended


def _checked(name: str, key: str, today: str, expires: str) -> ClientKeyEntry:
    """The entry of a new key; raises KeysFileError."""
    if not is_client_name(name):
        raise KeysFileError(NAME_FORM)
    if not key.isascii() or not key.isprintable() or " " in key or key.startswith(HASHED):
        raise KeysFileError("a key has plain characters without spaces, and is no digest")
    if not MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
        raise KeysFileError(f"a key has {MIN_KEY_CHARS} to {MAX_KEY_CHARS} characters")
    if expires and unix_time_of(expires) is None:
        raise KeysFileError(f"a key expires at {TIME_FORM}")
    return ClientKeyEntry(name=name, digest=digest_of(key), added=today, expires=expires)


def _with_key(
    text: str, entries: tuple[ClientKeyEntry, ...], added: ClientKeyEntry, file: Path
) -> str:
    """The text of the file with one key more; raises KeysFileError if it has that key."""
    other = next((entry for entry in entries if entry.digest == added.digest), None)
    if other is not None:
        raise KeysFileError(f"this key is in {file} already, as one of {other.name}")
    text = "".join(each for each in text.splitlines(keepends=True) if each.split() != [NONE])
    gap = "" if not text or text.endswith("\n") else "\n"
    end = f" {EXPIRES}{added.expires}" if added.expires else ""
    return f"{text}{gap}{added.name} {HASHED}{added.digest} {added.added}{end}\n"


def revoke_keys(file: Path, name: str, key_id: str | None = None) -> tuple[ClientKeyEntry, ...]:
    """Take out all keys of `name`, or the one whose digest begins with `key_id`; returns them.

    Raises NoSuchKeyError, KeysFileError for several with that id, and SettingsError.
    """
    with _locked(file) as place:
        text = read_keys_file(place)
        entries = parse_client_keys(text, file)
        found = [entry for entry in entries if entry.name == name]
        if not found:
            raise NoSuchKeyError(f"{file} has no key of {name!r}")
        if key_id is not None:
            found = [entry for entry in found if entry.digest.startswith(key_id.lower())]
            if not found:
                raise NoSuchKeyError(f"{file} has no key of {name!r} with the id {key_id!r}")
            if len(found) > 1:
                raise KeysFileError(f"several keys of {name!r} begin with {key_id!r}: write more")
        lines = {entry.line for entry in found}
        kept = [
            line
            for number, line in enumerate(text.splitlines(keepends=True), start=1)
            if number not in lines
        ]
        if len(found) == len(entries):
            gap = "" if not kept or kept[-1].endswith("\n") else "\n"
            kept.append(f"{gap}{NONE}\n")
        _replace(place, "".join(kept))
    return tuple(found)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """The file itself, if it is a link, while nobody else changes it."""
    place = file.resolve()
    try:
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _cannot(f"open the folder of {file}", error) from None
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise KeysFileError(
                        f"another command has been changing {file} for {LOCK_TIMEOUT_S:g} s"
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield place
    finally:
        os.close(folder)


def _replace(place: Path, text: str, before: Callable[[], None] = lambda: None) -> None:
    """Put the text in place of the file. It keeps the file's owner, and its mode but for others.
    `before` is called when all is written; if it raises an exception, the file stays as it was."""
    if len(text) > MAX_FILE_BYTES:
        raise KeysFileError(f"{place} would be longer than 1 MiB")
    try:
        old = place.stat() if place.exists() else None
        descriptor, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)  # 0600
    except OSError as error:
        raise _cannot(f"write beside {place}", error) from None
    beside = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                if old is not None:
                    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & ~stat.S_IRWXO)
                stream.write(text)
                stream.flush()
                os.fsync(descriptor)
        except OSError as error:
            raise _cannot(f"write beside {place}", error) from None
        before()
        try:
            beside.replace(place)
        except OSError as error:
            raise _cannot(f"replace {place}", error) from None
    finally:
        beside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the change is made; only a crash of the machine undoes it
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _cannot(what: str, error: OSError) -> KeysFileError:
    reason = (error.strerror or "it failed").lower()
    return KeysFileError(f"cannot {what}: {reason}; run this as the file's owner")
