"""One copy of what many requests say alike: of ten thousand in line, each would keep its own."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def intern_text(text: str) -> str:
    """A text equal to `text`, the same one each time while it is among the last 1,024 said."""
    return text
