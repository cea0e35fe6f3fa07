"""The text of a prompt, in the order in which servers put it together.

It only has to be equal where prompts begin equally; it is hashed, never shown or sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PARTS: Final = (
    "lora",
    "tools",
    "system",
    "instructions",
    "messages",
    "input_extra",
    "input_prefix",
    "input_suffix",
    "prompt",
    "input",
)
"""The keys that hold parts of a prompt, first to last."""


def prompt_text(tree: Mapping[str, Any]) -> str:
    """One text for the prompt of a request in any dialect. O(size of `tree`)."""
    return "\x00".join(
        piece for key in _PARTS if (value := tree.get(key)) for piece in _pieces(value)
    )


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and isinstance(value[0], dict):
        for item in value:
            yield from _message(item)
    else:
        yield repr(value)  # tokens, nested lists: the beginning of such a text stays its own


def _message(item: object) -> Iterator[str]:
    """A message, a part of one, or a tool: who speaks, what is said, then the rest of it."""
    if not isinstance(item, dict):
        yield repr(item)
        return
    for key, value in item.items():
        if key in _SPOKEN and isinstance(value, str):
            yield value
        elif key == "content" and isinstance(value, list):
            for part in value:
                text = part.get("text") if isinstance(part, dict) else part
                yield text if isinstance(text, str) else repr(part)
        elif value is not None:
            yield f"{key}={value!r}"


_SPOKEN: Final = frozenset({"role", "content", "text"})
