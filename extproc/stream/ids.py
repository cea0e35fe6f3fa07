"""Names for exchanges that nobody can guess."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ID_CHARS: Final = 16
"""64 random bits in hexadecimal."""
_AT_ONCE: Final = 256


def _ids() -> Iterator[str]:
    """To ask the system for entropy costs more than all else that makes a name."""
    while True:
        many = secrets.token_hex(_AT_ONCE * ID_CHARS // 2)
        for at in range(0, len(many), ID_CHARS):
            yield many[at : at + ID_CHARS]


new_id = _ids().__next__
"""A name that was never given before. For one event loop: it is no call for several threads."""
