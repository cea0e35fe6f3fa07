"""Claims about extproc/core/recent.py."""

from __future__ import annotations

from collections import OrderedDict

from extproc.core.recent import remember


def test_the_least_recent_is_forgotten() -> None:
    known: OrderedDict[str, list[str]] = OrderedDict()
    for key in ("a", "b", "a", "c"):
        remember(known, key, list, 2).append(key)
    assert known == {"a": ["a", "a"], "c": ["c"]}
    assert list(known) == ["a", "c"]
