"""A rule such as `POST /props` or `/slots*`, and the paths it stands for.

llama-server decodes `%XX` and even `%uXXXX` in a path before it looks for the route. Envoy
undoes the first kind while it makes the path plain; `HIDDEN_CHARACTER` finds what remains.
A rule also holds below any prefix, since servers may run with `--api-prefix`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

HIDDEN_CHARACTER = r".*%(?:[uU]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|2[dDeEfF]|5[fF]|7[eE]).*"
"""An escape for a character that needs none (letters, digits, `-` `.` `/` `_` `~`), or `%u`.

After Envoy has made the path plain, none is left in an honest one; what still has one could
be another path for llama-server than for our routes and for the picker.
"""


class BlockedPathError(ValueError):
    """A text that is no rule; `str(error)` shows what would be one."""


@dataclass(frozen=True, slots=True)
class BlockedPath:
    """`path` without a trailing slash, for `method` (any when None), `and_below` it too."""

    path: str
    method: str | None = None
    and_below: bool = False

    @classmethod
    def parse(cls, rule: str) -> BlockedPath:
        """Read `[METHOD] /path[*]`; raises `BlockedPathError`."""
        method, _, path = rule.strip().rpartition(" ")
        method = method.strip().upper()
        if method and method not in METHODS:
            raise BlockedPathError(f"{rule!r}: {method} is no method; write e.g. 'POST /props'")
        and_below = path.endswith("*")
        path = path.removesuffix("*").rstrip("/")
        if not path.startswith("/") or "//" in path or re.search(r"[\s*?#%]", path):
            raise BlockedPathError(f"{rule!r} is no path; write e.g. '/slots*' or 'POST /props'")
        return cls(path, method or None, and_below)

    def __str__(self) -> str:
        return f"{self.method + ' ' if self.method else ''}{self.path}{'*' * self.and_below}"


def path_pattern(rules: Collection[BlockedPath]) -> str:
    """One RE2 pattern for the whole path (no query), whatever the case of its letters."""
    below = "|".join(re.escape(rule.path) for rule in rules if rule.and_below)
    exact = "|".join(re.escape(rule.path) for rule in rules if not rule.and_below)
    choices = [f"(?:{below})(?:/.*)?"] * bool(below) + [f"(?:{exact})/?"] * bool(exact)
    return f"(?is)(?:/.*)?(?:{'|'.join(choices)})"
