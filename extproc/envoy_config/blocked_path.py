"""Rules about blocked paths as patterns of Envoy's routes.

llama-server decodes `%XX` and even `%uXXXX` in a path before it looks for the route. Envoy
undoes the first kind while it makes the path plain; `HIDDEN_CHARACTER` finds what remains.
A rule also holds below any prefix, since servers may run with `--api-prefix`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from extproc.core.blocked_path import BlockedPath

HIDDEN_CHARACTER = r".*%(?:[uU]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|2[dDeEfF]|5[fF]|7[eE]).*"
"""An escape for a character that needs none (letters, digits, `-` `.` `/` `_` `~`), or `%u`.

After Envoy has made the path plain, none is left in an honest one; what still has one could
be another path for llama-server than for our routes and for the picker.
"""


def path_pattern(rules: Collection[BlockedPath]) -> str:
    """One RE2 pattern for the whole path (no query), whatever the case of its letters."""
    below = "|".join(re.escape(rule.path) for rule in rules if rule.and_below)
    exact = "|".join(re.escape(rule.path) for rule in rules if not rule.and_below)
    choices = [f"(?:{below})(?:/.*)?"] * bool(below) + [f"(?:{exact})/?"] * bool(exact)
    return f"(?is)(?:/.*)?(?:{'|'.join(choices)})"
