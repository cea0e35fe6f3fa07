"""Paths of llama-server that no client may reach, and how a rule about one is written.

Said once here, for the settings that name such rules and for Envoy's routes that enforce them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


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


DEFAULT_BLOCKED = tuple(
    BlockedPath.parse(rule)
    for rule in (
        "/slots*",  # tells running prompts' numbers; saves, restores and erases caches
        "/metrics",  # every scrape resets the server's averaged gauges
        "POST /props",
        "POST /lora-adapters",
        "/models/load",
        "/models/unload",
        "/models/sse",
        "POST /models",
        "DELETE /models",
        "/tools",  # server-side tools, a shell among them
        "/cors-proxy",  # fetches any address that the server can reach
        "/predict",  # Vertex AI style: its body names any other route of the server
        "/v1/stream",  # replays or cancels an answer by its guessable conversation id
        "/v1/streams/lookup",
    )
)
"""llama-server's routes that leak what others do, or change a server, for any client."""
