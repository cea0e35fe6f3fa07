"""Which requests take a slot, and which paths are open; from the tables in `extproc/runners`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from posixpath import normpath
from typing import Final, NamedTuple
from urllib.parse import unquote

from extproc.core.fleet.membership import Fleet
from extproc.core.rejection import Reason
from extproc.core.request import Kind
from extproc.runners.api import Api
from extproc.runners.apis import (
    APIS,
    CLOSED_PATHS,
    COUNTING_PATHS,
    HEALTH_PATHS,
    MODEL_PATHS,
    MODELS_PATHS,
    OPEN_PATHS,
    QUERIED_PATHS,
    SLOT_PATHS,
    STREAM_LOOKUP_PATHS,
    STREAM_PATHS,
)
from extproc.security.path_rule import (
    HIDDEN_CHARACTER,
    METHODS,
    PathRule,
    blocked_pattern,
    open_pattern,
)

MAX_PATHS: Final = 1024
"""The paths of which it is remembered to which API they belong."""
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
        self._prefix = prefix
        self._open = (*OPEN_PATHS, *opened)
        self._blocked = tuple(blocked)
        self._opened = self._compiled(opened)
        self._patterns: dict[str, _Patterns] = {}
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
        self._streams = frozenset(f"{place}{path}" for place in places for path in STREAM_PATHS)
        self._lookups = frozenset(
            f"{place}{path}" for place in places for path in STREAM_LOOKUP_PATHS
        )
        below = f"(?:{re.escape(prefix)})?" if prefix else ""
        self._of_api = [
            (api, re.compile(open_pattern((*api.open_paths, *api.closed_paths), prefix)))
            for api in APIS
            if api.name
        ]
        self._api_of = lru_cache(maxsize=MAX_PATHS)(self._find_api)
        self._model = re.compile(f"{below}(?:{MODEL_PATHS})", re.DOTALL)
        self._health = frozenset(f"{place}{path}" for place in places for path in HEALTH_PATHS)

    def slot_kind(self, method: str, path: str) -> Kind | None:
        """How a request for `path` (with or without a query, in any spelling) uses its slot.

        None if it takes none, or the path is closed.
        """
        if method != "POST":
            return None
        plain = _without_query(path)
        return self._slots.get(plain) or self._slots.get(normalised(plain))

    def below_prefix(self, path: str) -> str:
        """A path that takes a slot as the tables write it; another one as it is."""
        plain = _without_query(path)
        if plain not in self._slots:
            plain = normalised(plain)
        if self._prefix and plain.startswith(f"{self._prefix}/"):
            below = plain.removeprefix(self._prefix)
            return below if below in SLOT_PATHS else path
        return plain if plain in self._slots else path

    def api_of(self, path: str) -> Api | None:
        """The API that the path belongs to; None if all servers have it, or nobody knows it."""
        return self._api_of(_without_query(path))

    def _find_api(self, plain: str) -> Api | None:
        plain = normalised(plain)
        return next((api for api, found in self._of_api if found.fullmatch(plain)), None)

    def needed_api(self, path: str, fleet: Fleet) -> str:
        """The name of the API that a server must have to get this path; empty if any may."""
        api = self.api_of(path)
        if api is None:
            return ""
        if api.lenient_paths and not fleet.has_api(api.name):
            plain = normalised(_without_query(path)).removeprefix(self._prefix)
            return "" if plain in api.lenient_paths else api.name
        return api.name

    def counts(self, method: str, path: str) -> bool:
        """Whether it takes no slot, but belongs to a model that its body names."""
        return method == "POST" and (path in self._counting or normalised(path) in self._counting)

    def asks_about_a_model(self, method: str, path: str) -> bool:
        """Whether it takes no slot, but belongs to a model that its query names."""
        is_get = method in ("GET", "HEAD")
        return is_get and (path in self._queried or normalised(path) in self._queried)

    def asks_for_stream(self, method: str, path: str) -> bool:
        """Whether it reads or ends a conversation, which its query names."""
        is_asked = method in ("GET", "HEAD", "DELETE")
        return is_asked and (path in self._streams or normalised(path) in self._streams)

    def finds_streams(self, method: str, path: str) -> bool:
        """Whether it looks up conversations, which its body names."""
        return method == "POST" and (path in self._lookups or normalised(path) in self._lookups)

    def asks_for_models(self, method: str, path: str) -> bool:
        """Whether it requests the list of models."""
        return method == "GET" and (path in self._models or normalised(path) in self._models)

    def asks_for_model(self, method: str, path: str) -> str | None:
        """The name of the model that it asks about, if it does."""
        plain = _without_query(path)
        if method not in ("GET", "HEAD") or "/models/" not in plain:
            return None
        plain = normalised(plain)
        found = self._model.fullmatch(plain)
        is_shut = self._patterns_of(method).blocks(plain) or self._is_shut(method, plain)
        if found is None or is_shut:
            return None
        version, name = found.groups()
        return name if version or self._opened.fullmatch(plain) is None else None

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

    def why_closed(self, method: str, path: str) -> Reason | None:
        """Why the path is closed: on purpose, or because nothing is known to be there. None if it
        is open."""
        if not self.is_closed(method, path):
            return None
        plain = normalised(_without_query(path))
        if self._patterns_of(method).blocks(plain) or self._is_shut(method, plain):
            return Reason.BLOCKED_PATH
        return Reason.UNKNOWN_PATH

    def _is_shut(self, method: str, plain: str) -> bool:
        """Whether it is closed on purpose: what the settings open for another method is not."""
        shut = self._patterns_of(method).shut
        return shut.fullmatch(plain) is not None and self._opened.fullmatch(plain) is None

    def _is_closed(self, method: str, plain: str) -> bool:
        patterns = self._patterns_of(method)
        return patterns.open.fullmatch(plain) is None or patterns.blocks(plain)

    def _patterns_of(self, method: str) -> _Patterns:
        known = method if method in METHODS or method == "HEAD" else OTHER
        patterns = self._patterns.get(known)
        if patterns is None:
            blocked = [rule for rule in self._blocked if rule.concerns(known)]
            patterns = self._patterns[known] = _Patterns(
                open=self._compiled(rule for rule in self._open if rule.concerns(known)),
                shut=self._compiled(rule for rule in CLOSED_PATHS if rule.concerns(known)),
                blocked=re.compile(blocked_pattern(blocked) if blocked else NOTHING),
            )
        return patterns

    def _compiled(self, rules: Iterable[PathRule]) -> re.Pattern[str]:
        found = tuple(rules)
        return re.compile(open_pattern(found, self._prefix) if found else NOTHING)


class _Patterns(NamedTuple):
    """What the rules say for one method: what is open, what is closed on purpose, and what the
    settings block."""

    open: re.Pattern[str]
    shut: re.Pattern[str]
    blocked: re.Pattern[str]

    def blocks(self, plain: str) -> bool:
        return (_HIDES.fullmatch(plain) or self.blocked.fullmatch(plain)) is not None


NOTHING: Final = "(?!)"
_HIDES: Final = re.compile(HIDDEN_CHARACTER, re.DOTALL)


def normalised(path: str) -> str:
    """The normal form of a path: escapes decoded, dots resolved, slashes merged, no last slash."""
    return normpath("/" + unquote(path, errors="replace").lstrip("/"))


def _without_query(path: str) -> str:
    return path.partition("?")[0].partition("#")[0]
