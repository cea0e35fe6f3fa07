"""Text that somebody else wrote, fit for a terminal or a log: nothing in it moves the cursor,
clears the screen, hides text or turns its direction. Pure.

Models, clients and llama-servers name things as they like, and a server prints what it likes.
"""

import json
import re
from typing import Any, Final

_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but the tab and the end of a line, marks of direction, what is not seen."""


def printable(text: str) -> str:
    """One line: what could do harm is replaced."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def escaped(text: str) -> str:
    r"""One line or several: what could do harm is written as `\x1b`."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON that reads the same, and in which what could do harm is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isascii() and "\x7f" not in text:  # JSON itself escapes the rest: no need to search
        return text
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)
