"""Creates exchange ids that cannot be guessed."""

import secrets
from typing import Final

ID_CHARS: Final = 16
"""64 random bits in hexadecimal."""
_AT_ONCE: Final = 256
"""Reads entropy in blocks, because each system call is slow."""
_unused: list[str] = []


def new_id() -> str:
    """A new, unique id. Not thread-safe."""
    if not _unused:
        many = secrets.token_hex(_AT_ONCE * ID_CHARS // 2)
        _unused.extend(many[at : at + ID_CHARS] for at in range(0, len(many), ID_CHARS))
    return _unused.pop()
