"""The API keys of clients, known by their SHA-256.

A key is looked up by its digest, so the time that it takes says nothing about any key.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_KEY_CHARS: Final = 512
BEARER: Final = "bearer "


def digest_of(key: str) -> str:
    """How a key is known: hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KnownKey(NamedTuple):
    """Whose key it is, and its digest; both empty for a key that is nobody's."""

    client: str = ""
    digest: str = ""


UNKNOWN: Final = KnownKey()


class KnownKeys:
    """The names of clients by the digests of their keys; `replace` changes all at once."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.replace(names or {})

    def replace(self, names: Mapping[str, str]) -> None:
        """From now on these keys open, and no others."""
        self._names = dict(names)
        self._keys = {digest: KnownKey(name, digest) for digest, name in names.items()}

    def names(self) -> Mapping[str, str]:
        """The names by digest: another object after each `replace`, never changed itself."""
        return self._names

    def is_client(self, name: str) -> bool:
        """Whether a client of this name has a key. O(keys)."""
        return name in self._names.values()

    def knows(self, digest: str) -> bool:
        """Whether the key with this digest opens still."""
        return digest in self._keys

    def client_of(self, authorization: str, api_key: str) -> str:
        """Whose key is in one of these headers; empty if neither is a client's."""
        return self.find(authorization, api_key).client

    def find(self, authorization: str, api_key: str) -> KnownKey:
        """The client's key in one of these headers, `authorization` and `x-api-key`."""
        if authorization[: len(BEARER)].lower() == BEARER:
            authorization = authorization[len(BEARER) :].strip()
        found = self._find(authorization)
        return found if found.client else self._find(api_key)

    def _find(self, key: str) -> KnownKey:
        if not key or len(key) > MAX_KEY_CHARS:
            return UNKNOWN
        return self._keys.get(digest_of(key), UNKNOWN)
