"""Names for exchanges that nobody can guess."""

from __future__ import annotations

import secrets
from typing import Final

ID_CHARS: Final = 16
"""64 random bits in hexadecimal."""
_AT_ONCE: Final = 256
"""To ask the system for entropy costs more than all else that makes a name."""
_unused: list[str] = []


def new_id() -> str:
    """A name that was never given before. For one event loop: it is no call for several threads."""
    if not _unused:
        many = secrets.token_hex(_AT_ONCE * ID_CHARS // 2)
        _unused.extend(many[at : at + ID_CHARS] for at in range(0, len(many), ID_CHARS))
    return _unused.pop()
