"""A bounded memory by key: what was asked for least recently is forgotten."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(known: OrderedDict[K, V], key: K, make: Callable[[], V], limit: int) -> V:
    """The value of a key, which is now the most recent one of at most `limit`; `make` makes a new
    one. O(1)."""
    value = known.get(key)
    if value is None:
        value = known[key] = make()
        if len(known) > limit:
            known.popitem(last=False)
    else:
        known.move_to_end(key)
    return value
