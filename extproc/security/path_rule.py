"""Rules about paths: their notation, and the regular expression for a set of rules.

Envoy's routes (RE2) and the picker (`re`) use the same expressions, so they agree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
"""The methods that a rule may name. HEAD is treated as GET; OPTIONS is answered for every path."""
FILE_CHARACTERS: Final = "[A-Za-z0-9._-]"
"""The characters of a file name that `*` stands for: none of them needs an escape."""

MAX_RULE_CHARS: Final = 48
MAX_PREFIX_CHARS: Final = 24
"""Longer ones would not fit into one of Envoy's patterns, see `envoy_config/path_patterns.py`."""
UNFIT: Final = re.compile(r"[^!-~]|[*?#%]")
"""Characters that no normalized path has, or that have another meaning in a rule."""

HIDDEN_CHARACTER: Final = r".*%(?:[uU]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|2[dDeEfF]|5[fF]|7[eE]).*"
"""An escape for a character that needs none (letters, digits, `-` `.` `/` `_` `~`), or `%u`.

An honest path has none after normalization. A path that still has one could be a different path
for llama-server, which decodes `%XX` and even `%uXXXX`, than for our rules.
"""

DETOUR: Final = r".*(?://|\\|/\.\.?/|%(?:2[fF]|5[cC])).*|.*/\.\.?"
"""A path that Envoy would normalise: empty or dot segments, backslashes, escaped slashes."""


class PathRuleError(ValueError):
    """A text that is no rule; `str(error)` shows a valid one."""


@dataclass(frozen=True, slots=True)
class PathRule:
    """`path` without a trailing slash (empty: the root), for `method` (None: any).

    `and_below` includes the paths below it; a `suffix` selects instead the files directly below it
    with this ending.
    """

    path: str
    method: str | None = None
    and_below: bool = False
    suffix: str = ""

    @classmethod
    def parse(cls, rule: str) -> PathRule:
        """Parse `[METHOD] /path`, `/path*` or `/path/*.js`; raises `PathRuleError`."""
        method, _, path = rule.strip().rpartition(" ")
        method = method.strip().upper()
        if method and method not in METHODS:
            raise PathRuleError(f"{rule!r}: {method} is no method; write e.g. 'POST /props'")
        suffix = ""
        if file := re.fullmatch(r"(/|/.*/)\*(\.[A-Za-z0-9.]+)", path):
            path, suffix = file[1], file[2]
        and_below = path.endswith("*")
        path = path.removesuffix("*")
        is_long = len(path) + len(suffix) > MAX_RULE_CHARS
        if is_long or not path.startswith("/") or "//" in path or UNFIT.search(path) is not None:
            raise PathRuleError(
                f"{rule!r} is no path, or too long; write e.g. '/slots*' or 'POST /props'"
            )
        return cls(path.rstrip("/"), method or None, and_below, suffix)

    def __str__(self) -> str:
        method = f"{self.method} " if self.method else ""
        if self.suffix:
            return f"{method}{self.path}/*{self.suffix}"
        below = "*" * self.and_below
        return f"{method}{self.path or '/'}{below}"

    def concerns(self, method: str) -> bool:
        """Whether the rule opens or closes its paths to `method`. HEAD is treated as GET."""
        return self.method in (None, method) or (method, self.method) == ("HEAD", "GET")


def open_pattern(rules: Collection[PathRule], prefix: str = "") -> str:
    """The regular expression for whole paths (no query) of these rules, at the root and below
    `prefix`.

    It is exact: llama-server's paths are case-sensitive, and it serves nothing below another
    prefix. A trailing slash is optional.
    """
    below = f"(?:{re.escape(prefix)})?" if prefix else ""
    return f"{below}{_choices(rules)}"


def blocked_pattern(rules: Collection[PathRule]) -> str:
    """The same, case-insensitive and below any prefix: it blocks too much rather than too little.
    A rule about the root applies only at the root."""
    roots = [rule for rule in rules if not (rule.path or rule.and_below or rule.suffix)]
    others = [rule for rule in rules if rule not in roots]
    choices = ["/"] * bool(roots) + [f"(?:/.*)?{_choices(others)}"] * bool(others)
    return f"(?is)(?:{'|'.join(choices)})"


def _choices(rules: Iterable[PathRule]) -> str:
    exact, below = [], []
    files: dict[str, list[str]] = {}
    for rule in rules:
        path = re.escape(rule.path)
        if rule.suffix:
            files.setdefault(path, []).append(re.escape(rule.suffix))
        elif rule.and_below:
            below.append(path)
        else:
            exact.append(path)
    choices = [f"(?:{'|'.join(below)})(?:/.*)?"] * bool(below)
    choices += [f"(?:{'|'.join(exact)})/?"] * bool(exact)
    choices += [
        f"{path}/{FILE_CHARACTERS}*(?:{'|'.join(endings)})" for path, endings in files.items()
    ]
    return f"(?:{'|'.join(choices)})"
