"""The API keys of clients, known by their SHA-256.

A key is looked up by its digest, so the time that it takes says nothing about any key.
"""

import hashlib
from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

MAX_KEY_CHARS: Final = 512
BEARER: Final = "bearer "


def digest_of(key: str) -> str:
    """How a key is known: hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KnownKey(NamedTuple):
    """Whose key it is, and its digest; both empty for a key that is nobody's. One that has expired
    is nobody's, and has a digest."""

    client: str = ""
    digest: str = ""


UNKNOWN: Final = KnownKey()


class KnownKeys:
    """The names of clients by the digests of their keys; `replace` changes all at once."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.replace(names or {})

    def replace(self, names: Mapping[str, str], ends: Mapping[str, float] | None = None) -> None:
        """From now on these keys open, and no others. `ends` are the Unix times at which some
        expire, by digest: `expire` is to be called then."""
        self._names = dict(names)
        self._clients = frozenset(self._names.values())
        self._ends = dict(ends or {})
        self._next_end = min(self._ends.values(), default=inf)
        self._keys = {digest: KnownKey(name, digest) for digest, name in names.items()}

    def expire(self, unix_s: float) -> list[str]:
        """Let the keys open no more that end by this time; returns their clients' names."""
        if unix_s < self._next_end:
            return []
        over = [digest for digest, end in self._ends.items() if end <= unix_s]
        expired = [self._names[digest] for digest in over]
        self._names = {key: name for key, name in self._names.items() if key not in over}
        self._clients = frozenset(self._names.values())
        self._keys = {**self._keys, **{digest: KnownKey("", digest) for digest in over}}
        self._ends = {digest: end for digest, end in self._ends.items() if digest not in over}
        self._next_end = min(self._ends.values(), default=inf)
        return expired

    def names(self) -> Mapping[str, str]:
        """The names by digest of the keys that open: another object after each change, never
        changed itself."""
        return self._names

    def ends(self) -> Mapping[str, float]:
        """The Unix times at which they expire, by digest, of those that do."""
        return self._ends

    def is_client(self, name: str) -> bool:
        """Whether a client of this name has a key that opens."""
        return name in self._clients

    def knows(self, digest: str) -> bool:
        """Whether the key with this digest opens still."""
        return digest in self._names

    def find(self, authorization: str, api_key: str) -> KnownKey:
        """The client's key in one of these headers, `authorization` and `x-api-key`."""
        if authorization[: len(BEARER)].lower() == BEARER:
            authorization = authorization[len(BEARER) :].strip()
        found = self._find(authorization)
        if found.client:
            return found
        other = self._find(api_key)
        return other if other.client or not found.digest else found

    def _find(self, key: str) -> KnownKey:
        if not key or len(key) > MAX_KEY_CHARS:
            return UNKNOWN
        return self._keys.get(digest_of(key), UNKNOWN)
