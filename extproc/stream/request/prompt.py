"""The text of a prompt, in the order in which servers put it together.

It only has to be equal where prompts begin equally; it is hashed, never shown or sent. An image
or a sound stands in it with about as many characters as it has tokens' worth of text.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

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
"""The keys with parts of a prompt, in order."""
_SPOKEN: Final = frozenset({"role", "content", "text"})
_NESTED: Final = frozenset({"content", "output"})
"""The keys with parts of a message, or of the result of a tool."""
_UNREAD: Final = "cache_control"
"""A mark for Anthropic's own cache, which clients move on with each turn; no llama-server reads
it, so it must not make an old message a new one."""
_PLAIN_ESCAPES: Final = frozenset(b'"\\bfnrt')
"""Behind a backslash, these are written as they are read."""
_JSON: Final = msgspec.json.Encoder()
_MEDIA: Final = frozenset(
    {
        *("image_url", "input_image", "image", "images"),
        *("input_audio", "input_video", "multimodal_data"),
    }
)
"""The types and keys of images and sounds."""
MEDIUM_CHARS: Final = 4096
"""What is kept of one: models make hundreds to thousands of tokens of it, whatever its bytes."""


class Prompt(NamedTuple):
    """`has_media` says that it has images or sounds, so its text says little of its length."""

    text: str = ""
    has_media: bool = False


def read_prompt(tree: Mapping[str, Any]) -> Prompt:
    """The prompt of a request in any API format. O(size of `tree`)."""
    pieces: list[str] = []
    has_any = bool(tree.get("images"))  # of Ollama's API
    for key in _PARTS:
        value = tree.get(key)
        if key == "tools" and value and isinstance(value, list):
            value = _text_of_tools(value)
        if value:
            has_any |= _add(pieces, value)
    return Prompt("\x00".join(pieces), has_any)


def skim_tools(raw: bytes) -> str | None:
    """What `read_prompt` makes of tools, from their bytes and without making objects of them; None
    if they have to be read."""
    if not raw.startswith(b"[") or _UNREAD.encode() in raw or not _is_plain(raw):
        return None
    try:
        text = msgspec.json.format(raw, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return text if text != "[]" else None


def _is_plain(raw: bytes) -> bool:
    """Whether no letter is written as an escape that it does not need."""
    place = raw.find(b"\\")
    while place >= 0:
        if raw[place + 1] not in _PLAIN_ESCAPES:
            return False
        place = raw.find(b"\\", place + 2)
    return True


def _text_of_tools(tools: list[object]) -> object:
    """Their JSON, or themselves where a mark of a cache has to be left out."""
    text = _JSON.encode(tools)
    return tools if _UNREAD.encode() in text else text.decode()


def has_media(value: object) -> bool:
    """Whether images or sounds are in it; O(1) for texts and tokens."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and _add([], value)


def _add(pieces: list[str], value: object) -> bool:
    """Append the pieces of one part; returns whether they include an image or a sound."""
    if isinstance(value, str):
        pieces.append(value)
    elif isinstance(value, dict):
        return _add_message(pieces, value)
    elif isinstance(value, list) and isinstance(value[0], dict):
        has_any = False
        for item in value:
            has_any |= _add_message(pieces, item)
        return has_any
    else:
        pieces.append(repr(value))  # tokens, nested lists: its beginning stays its own
    return False


def _add_message(pieces: list[str], item: object) -> bool:
    """A message, a part of one, or a tool: the role, the content, then the rest."""
    if not isinstance(item, dict):
        pieces.append(repr(item))
        return False
    kind = item.get("type")
    if (isinstance(kind, str) and kind in _MEDIA) or not _MEDIA.isdisjoint(item):
        pieces.append(_shortened(repr({k: v for k, v in item.items() if k != _UNREAD})))
        return True
    has_any = False
    for key, value in item.items():
        if key in _SPOKEN and isinstance(value, str):
            pieces.append(value)
        elif key in _NESTED and isinstance(value, list):
            for part in value:
                text = part.get("text") if isinstance(part, dict) else part
                if isinstance(text, str):
                    pieces.append(text)
                else:
                    has_any |= _add_message(pieces, part)
        elif value is not None and key != _UNREAD:
            pieces.append(f"{key}={value!r}")
    return has_any


def _shortened(medium: str) -> str:
    """Its beginning, which bodies with another end share, and a hash of all of it."""
    return medium if len(medium) <= MEDIUM_CHARS else f"{medium[:MEDIUM_CHARS]}{hash(medium)}"
