"""The API keys of clients: a file with one line for each.

    name sha256:DIGEST [DATE] [expires=TIME]     as `coxswain keys add` writes them
    name KEY [expires=TIME]                      as people write them
    none                     alone: there are no keys any more, as `keys revoke` writes it

TIME is a time with its zone, or a date: then the key opens until the end of that day, by UTC.
A file without keys that does not say so was cut, and changes nothing in a picker that runs.
Keys are known by the SHA-256 of their bytes, hexadecimal: they are random and long, so nobody can
guess one from it, and it needs no salt.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from extproc.security.known_keys import MAX_KEY_CHARS, digest_of
from extproc.security.reading import at_once
from extproc.settings.problems import Problem, SettingsError

MAX_FILE_BYTES: Final = 1024 * 1024
ID_CHARS: Final = 12
HASHED: Final = "sha256:"
NONE: Final = "none"
KEY: Final = "clients.keys_file"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,99}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
EXPIRES: Final = "expires="
TIME_FORM: Final = "a date such as 2026-12-31, or a time with its zone such as 2026-12-31T18:00:00Z"
_FORM: Final = "write each line as `name key`, or let `coxswain keys add` write it"
NAME_FORM: Final = (
    "a name has up to 100 letters, digits and . _ @ + : / -, and begins with a letter or digit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKeyEntry:
    """One key: whose it is, its digest, and when it was added, if the file says so.

    `line` is its number in the file, from 1; `key` is the key itself if the file holds it.
    `expires` is when it stops opening, as the file says it; empty for never.
    """

    name: str
    digest: str
    added: str = ""
    expires: str = ""
    key: str | None = field(default=None, repr=False)
    line: int = 0

    @property
    def id(self) -> str:
        """The start of its digest, by which people name it."""
        return self.digest[:ID_CHARS]

    @property
    def ends_at(self) -> float | None:
        """The Unix time from which on it opens no more; None for never."""
        return unix_time_of(self.expires) if self.expires else None


def unix_time_of(text: str) -> float | None:
    """The Unix time at which a key with this `expires` stops opening; None if it says none."""
    try:
        found = datetime.fromisoformat(text)
        if _DATE.fullmatch(text):
            return (found.replace(tzinfo=UTC) + timedelta(days=1)).timestamp()
        return None if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError):
        return None


def is_client_name(name: str) -> bool:
    """Whether a client may be called so."""
    return _NAME.fullmatch(name) is not None


def read_client_keys(file: Path) -> tuple[ClientKeyEntry, ...]:
    """The keys in the file, in its order; none lets nobody in.

    Blocks on the disk. Raises SettingsError with the line of each error; never shows a key.
    """
    return parse_client_keys(read_keys_file(file), file)


def read_keys_file(file: Path) -> str:
    """Its text. Blocks on the disk; raises SettingsError."""
    try:
        with open(file, "rb", opener=at_once) as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise SettingsError([_problem(str(file), "it is longer than 1 MiB")])
        return content.decode("ascii")
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise SettingsError([_problem(str(file), reason)]) from None
    except UnicodeDecodeError:
        raise SettingsError([_problem(str(file), "names and keys must be plain ASCII")]) from None


def parse_client_keys(text: str, file: Path) -> tuple[ClientKeyEntry, ...]:
    """The keys in this text of the file. Blank lines and lines that begin with # are ignored."""
    found: dict[str, ClientKeyEntry] = {}
    problems = []
    none = 0
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if parts == [NONE]:
            none = number
            continue
        entry = _entry(parts, number)
        if isinstance(entry, str):
            problems.append(_problem(f"{file}:{number}", entry))
        elif entry.digest in found:
            problems.append(_problem(f"{file}:{number}", "this key is in the file already"))
        else:
            found[entry.digest] = entry
    if none and found:
        problems.append(_problem(f"{file}:{none}", "this line says that there are no keys"))
    if problems:
        raise SettingsError(problems)
    return tuple(found.values())


def says_none(text: str) -> bool:
    """Whether this text of the file says that there are no keys."""
    return any(line.split() == [NONE] for line in text.splitlines())


def _entry(parts: list[str], line: int) -> ClientKeyEntry | str:
    """The key that a line's words say, or what is wrong with them."""
    expires = ""
    if len(parts) > 2 and parts[-1].startswith(EXPIRES):
        *parts, last = parts
        expires = last.removeprefix(EXPIRES)
        if unix_time_of(expires) is None:
            return f"after {EXPIRES} write {TIME_FORM}"
    if not all(part.isprintable() for part in parts) or len(parts) not in (2, 3):
        return _FORM
    name, key, *dates = parts
    if not is_client_name(name):
        return NAME_FORM
    if key.startswith(HASHED):
        digest = key.removeprefix(HASHED)
        if not _DIGEST.fullmatch(digest):
            return "after sha256: there must be 64 hexadecimal digits, in lower case"
        if dates and not _DATE.fullmatch(dates[0]):
            return "after the digest there may only be a date, such as 2026-01-31, and expires="
        added = "".join(dates)
        return ClientKeyEntry(name=name, digest=digest, added=added, expires=expires, line=line)
    if dates:
        return _FORM
    if len(key) > MAX_KEY_CHARS:
        return f"a key has at most {MAX_KEY_CHARS} characters"
    return ClientKeyEntry(name=name, digest=digest_of(key), key=key, expires=expires, line=line)


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, key=KEY, message=message)
