"""A gateway's subset hints, which restrict the endpoints for a request; each is parsed once.

An entry is `ip:port`, or an IP alone for all its ports; an entry without an endpoint is ignored.
A gateway sends the same hint with each request of a route, so a repeated hint costs one dictionary
lookup. The endpoints that it allows are computed again after the fleet has changed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from extproc.core.address import Address, AddressError
from extproc.core.fleet.membership import Fleet

MAX_HINTS: Final = 256
MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Bounds of the memory: the most recently used hints, about this size in total."""
ENTRY_BYTES: Final = 150
"""The memory of an entry beside its bytes in the hint: a string, and an item of a set."""
MAX_ENTRY_CHARS: Final = 100
"""No spelling of an address is longer."""
_ANY_PORT: Final = 1
"""Stands for the port while the host of an entry without a port is parsed."""


class Hint:
    """One hint. Only `SubsetHints` changes it."""

    __slots__ = ("allowed", "entries", "version")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        self.version = -1
        """The version of the membership that `allowed` was computed for."""
        self.allowed: frozenset[Address] = frozenset()


class SubsetHints:
    """The most recently used hints. A known hint is O(its bytes), to hash them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._hints: OrderedDict[bytes, Hint] = OrderedDict()
        self.kept_bytes = 0
        """The approximate memory of all hints."""
        self._spelled: dict[str, tuple[Address, ...]] = {}
        self._spelled_version = -1

    def __len__(self) -> int:
        return len(self._hints)

    def find(self, raw: bytes) -> Hint | None:
        """The hint with these bytes; None if it is not remembered."""
        hint = self._hints.get(raw)
        if hint is not None:
            self._hints.move_to_end(raw)
        return hint

    def add(self, raw: bytes, entries: Iterable[str]) -> Hint:
        """Remember a hint with these bytes; evicts the least recently used ones."""
        hint = self._hints.get(raw)
        if hint is None:
            hint = self._hints[raw] = Hint(tuple(entries))
            self.kept_bytes += _size(raw, hint)
            while len(self._hints) > MAX_HINTS or self.kept_bytes > MAX_KEPT_BYTES:
                oldest, forgotten = self._hints.popitem(last=False)
                self.kept_bytes -= _size(oldest, forgotten)
        return hint

    def allowed(self, hint: Hint) -> frozenset[Address]:
        """The addresses of the current fleet that it allows. O(1), and O(its entries) if the fleet
        changed since the last call."""
        version = self._fleet.version
        if hint.version != version:
            if self._spelled_version != version:
                self._spelled = _spellings(e.address for e in self._fleet if not e.is_removed)
                self._spelled_version = version
            found = frozenset(a for entry in hint.entries for a in self._named(entry))
            hint.version = version
            if found != hint.allowed:
                hint.allowed = found
        return hint.allowed

    def _named(self, entry: str) -> tuple[Address, ...]:
        named = self._spelled.get(entry)
        if named is None:
            spelled = _respelled(entry)
            named = () if spelled is None else self._spelled.get(spelled, ())
        return named


def _size(raw: bytes, hint: Hint) -> int:
    return 2 * len(raw) + ENTRY_BYTES * len(hint.entries)


def _spellings(fleet: Iterable[Address]) -> dict[str, tuple[Address, ...]]:
    """The addresses of each canonical entry."""
    found: dict[str, tuple[Address, ...]] = {}
    for address in fleet:
        found[str(address)] = (address,)
        found[address.host] = (*found.get(address.host, ()), address)
    return found


def _respelled(entry: str) -> str | None:
    """The canonical form of another spelling of an address; None if there is no other.

    An IPv4 address has only one spelling, so most entries need not be parsed.
    """
    if len(entry) > MAX_ENTRY_CHARS:
        return None
    is_plain = "[" not in entry and "]" not in entry and ":0" not in entry
    return None if is_plain and entry.count(":") <= 1 else _canonical(entry)


@lru_cache(maxsize=8192)
def _canonical(entry: str) -> str | None:
    try:
        return str(Address.parse(entry))
    except AddressError:
        pass
    try:
        return Address.of(entry.removeprefix("[").removesuffix("]"), _ANY_PORT).host
    except AddressError:
        return None
