"""Which requests take a slot, and which paths are open; from `security/api_paths.py`."""

import re
from collections.abc import Collection
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

from extproc.core.request import Kind
from extproc.security.api_paths import (
    COUNTING_PATHS,
    HEALTH_PATHS,
    MODELS_PATHS,
    OPEN_PATHS,
    QUERIED_PATHS,
    SLOT_PATHS,
)
from extproc.security.path_rule import (
    HIDDEN_CHARACTER,
    METHODS,
    PathRule,
    blocked_pattern,
    open_pattern,
)

OTHER: Final = ""
"""Stands for all methods that no rule contains."""


class Paths:
    """What the settings and llama-server's tables say about each path.

    `prefix` is below what the tables hold, too. `opened` are open besides the tables, `blocked`
    closed in spite of them. Envoy's printed routes say the same; this holds behind any other.
    """

    def __init__(
        self,
        prefix: str = "",
        opened: Collection[PathRule] = (),
        blocked: Collection[PathRule] = (),
    ) -> None:
        self._open = (*OPEN_PATHS, *opened)
        self._blocked = tuple(blocked)
        self._prefix = prefix
        self._patterns: dict[str, tuple[re.Pattern[str], re.Pattern[str] | None]] = {}
        places = ("", prefix) if prefix else ("",)
        self._slots: dict[str, Kind] = {
            f"{place}{path}": kind
            for place in places
            for path, kind in SLOT_PATHS.items()
            if not self._is_closed("POST", f"{place}{path}")
        }
        self._models = frozenset(f"{place}{path}" for place in places for path in MODELS_PATHS)
        self._counting = frozenset(f"{place}{path}" for place in places for path in COUNTING_PATHS)
        self._queried = frozenset(f"{place}{path}" for place in places for path in QUERIED_PATHS)
        self._health = frozenset(f"{place}{path}" for place in places for path in HEALTH_PATHS)

    def slot_kind(self, method: str, path: str) -> Kind | None:
        """How a request for `path` (with or without a query, in any spelling) uses its slot.

        None if it takes none, or the path is closed.
        """
        if method != "POST":
            return None
        plain = _without_query(path)
        return self._slots.get(plain) or self._slots.get(normalised(plain))

    def counts(self, method: str, path: str) -> bool:
        """Whether it takes no slot, but belongs to a model that its body names."""
        return method == "POST" and (path in self._counting or normalised(path) in self._counting)

    def asks_about_a_model(self, method: str, path: str) -> bool:
        """Whether it takes no slot, but belongs to a model that its query names."""
        is_get = method in ("GET", "HEAD")
        return is_get and (path in self._queried or normalised(path) in self._queried)

    def asks_for_models(self, method: str, path: str) -> bool:
        """Whether it requests the list of models."""
        return method == "GET" and (path in self._models or normalised(path) in self._models)

    def asks_for_health(self, method: str, path: str) -> bool:
        """Whether it requests a server's health, on an open path."""
        if method != "GET" or not (path in self._health or normalised(path) in self._health):
            return False
        return not self.is_closed(method, path)

    def is_closed(self, method: str, path: str) -> bool:
        """Whether the path is closed, in any spelling. A request without a path comes from a
        gateway, whose own routes decide."""
        plain = _without_query(path)
        return bool(plain) and self._is_closed(method, normalised(plain))

    def _is_closed(self, method: str, plain: str) -> bool:
        known = method if method in METHODS or method == "HEAD" else OTHER
        patterns = self._patterns.get(known)
        if patterns is None:
            patterns = self._patterns[known] = self._compiled(known)
        opened, blocked = patterns
        if opened.fullmatch(plain) is None or _HIDES.fullmatch(plain) is not None:
            return True
        return blocked is not None and blocked.fullmatch(plain) is not None

    def _compiled(self, method: str) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        opened = [rule for rule in self._open if rule.opens(method)]
        blocked = [rule for rule in self._blocked if rule.blocks(method)]
        return (
            re.compile(open_pattern(opened, self._prefix) if opened else NOTHING),
            re.compile(blocked_pattern(blocked)) if blocked else None,
        )


NOTHING: Final = "(?!)"
_HIDES: Final = re.compile(HIDDEN_CHARACTER, re.DOTALL)


def normalised(path: str) -> str:
    """The normal form of a path: escapes decoded, dots resolved, slashes merged, no last slash."""
    return normpath("/" + unquote(path, errors="replace").lstrip("/"))


def _without_query(path: str) -> str:
    return path.partition("?")[0].partition("#")[0]
