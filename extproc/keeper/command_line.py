r"""A command as people write it, split into its arguments. Pure.

Quotes and backslashes mean what they mean in a POSIX shell, and nothing is expanded. A command may
have several lines: a line that begins with `#` is a comment, and a `\` at the end of a line is left
out. `#` anywhere else is a character like any other, as in a key or a password.
"""

from typing import Final

_BLANKS: Final = frozenset(" \t\r\n")
_ESCAPED_IN_QUOTES: Final = frozenset('$`"\\')


def split_command(text: str) -> list[str]:
    """The arguments. Raises `ValueError` for a quotation without an end."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(_joined(without_comments(text)))
    for char in characters:
        if char == "\\" and quote != "'":
            following = next(characters, "")
            is_escape = not quote or following in _ESCAPED_IN_QUOTES
            word = (word or "") + (following if is_escape else char + following)
        elif char == quote:
            quote = ""
        elif quote:
            word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif char not in _BLANKS:
            word = (word or "") + char
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise ValueError(f"the quotation that begins with {quote} has no end")
    return words if word is None else [*words, word]


def without_comments(text: str) -> str:
    """The text without the lines that begin with `#`."""
    return "\n".join(line for line in text.split("\n") if not line.strip().startswith("#"))


def _joined(text: str) -> str:
    r"""The text without a `\` at the end of a line."""
    ends = ((line, line.strip()) for line in text.split("\n"))
    return "\n".join(
        f"{stripped[:-1]} " if stripped.endswith("\\") else line for line, stripped in ends
    )
