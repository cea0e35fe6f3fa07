"""A gateway's hints which endpoints may serve a request, each understood once.

An entry is `ip:port`, or an IP alone for all its ports; one that names nobody counts for nobody.
A gateway sends the same hint with each request of a route, so a hint that comes again costs a
look into a dictionary. What it allows is worked out anew when the fleet has changed since.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from extproc.core.address import Address, AddressError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.fleet.membership import Fleet

MAX_HINTS: Final = 256
MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Bounds of what is remembered: the hints used last, about as large as this in all."""
ENTRY_BYTES: Final = 150
"""What an entry takes beside its place in the hint: a text, and a place among those allowed."""
MAX_ENTRY_CHARS: Final = 100
"""No spelling of an address is longer."""
_ANY_PORT: Final = 1
"""Stands for the port while the host of an entry without one is read."""


class Hint:
    """One hint. Only `SubsetHints` writes it."""

    __slots__ = ("allowed", "entries", "version")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        self.version = -1
        """Of the membership that `allowed` was worked out for."""
        self.allowed: frozenset[Address] = frozenset()


class SubsetHints:
    """The hints that came last. A hint that is known is O(its bytes), to hash them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._hints: OrderedDict[bytes, Hint] = OrderedDict()
        self._kept_bytes = 0
        self._spelled: dict[str, tuple[Address, ...]] = {}
        self._spelled_version = -1

    def __len__(self) -> int:
        return len(self._hints)

    @property
    def kept_bytes(self) -> int:
        """About how much the remembered hints take."""
        return self._kept_bytes

    def find(self, raw: bytes) -> Hint | None:
        """The hint that came as these bytes before; None when it is not remembered."""
        hint = self._hints.get(raw)
        if hint is not None:
            self._hints.move_to_end(raw)
        return hint

    def add(self, raw: bytes, entries: Iterable[str]) -> Hint:
        """Remember a hint that came as these bytes, in place of those used longest ago."""
        hint = self._hints.get(raw)
        if hint is None:
            hint = self._hints[raw] = Hint(tuple(entries))
            self._kept_bytes += _size(raw, hint)
            while len(self._hints) > MAX_HINTS or self._kept_bytes > MAX_KEPT_BYTES:
                oldest, forgotten = self._hints.popitem(last=False)
                self._kept_bytes -= _size(oldest, forgotten)
        return hint

    def allowed(self, hint: Hint) -> frozenset[Address]:
        """Which addresses of the present fleet it allows. O(1), and O(its entries) when the fleet
        changed since it was asked last."""
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
    """Whom each canonical entry names."""
    found: dict[str, tuple[Address, ...]] = {}
    for address in fleet:
        found[str(address)] = (address,)
        found[address.host] = (*found.get(address.host, ()), address)
    return found


def _respelled(entry: str) -> str | None:
    """Another spelling of an address in its canonical one; None where there is no other.

    An IPv4 address has one spelling only, so most entries need not be read for it.
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
