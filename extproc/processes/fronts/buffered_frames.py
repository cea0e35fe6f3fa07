"""What fronts said while a core could not decide, in one order.

Each front is heard in its own order. Between fronts the beginnings of calls decide: one that is
greeted or reached late would otherwise come behind requests that arrived after its own.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import TypeAlias

Said: TypeAlias = "tuple[float | None, Callable[[], None]]"
"""When the call began that this begins, None for what begins none; and what hears it."""


def in_order(fronts: Iterable[Iterable[Said]]) -> Iterator[Callable[[], None]]:
    """Merge what each front said. What begins no call comes with the call that began before it, so
    that a front's own order holds, whatever its clock or the network made of the beginnings."""
    for _, hear in merge(*map(_dated, fronts), key=lambda entry: entry[0]):
        yield hear


def _dated(said: Iterable[Said]) -> Iterator[tuple[float, Callable[[], None]]]:
    latest = float("-inf")
    for began_at, hear in said:
        if began_at is not None:
            latest = max(latest, began_at)
        yield latest, hear
