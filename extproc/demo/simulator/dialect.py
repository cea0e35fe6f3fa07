"""The two formats of OpenAI's API: text and chat message. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The format of one choice: whole, or streamed as an opening, parts and an end."""

    kind: str
    streamed_kind: str
    whole: Callable[[int, str], Json]
    opening: Callable[[int], Json] | None
    part: Callable[[int, str], Json]
    last: Callable[[int], Json]


def _text(index: int, text: str, reason: str | None) -> Json:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def _message(index: int, text: str) -> Json:
    message = {"role": "assistant", "content": text}
    return {"finish_reason": "length", "index": index, "message": message}


def _delta(index: int, delta: Json, reason: str | None) -> Json:
    return {"finish_reason": reason, "index": index, "delta": delta}


TEXT = Dialect(
    kind="text_completion",
    streamed_kind="text_completion",
    whole=lambda index, text: _text(index, text, "length"),
    opening=None,
    part=lambda index, text: _text(index, text, None),
    last=lambda index: _text(index, "", "length"),
)

CHAT = Dialect(
    kind="chat.completion",
    streamed_kind="chat.completion.chunk",
    whole=_message,
    opening=lambda index: _delta(index, {"role": "assistant", "content": None}, None),
    part=lambda index, text: _delta(index, {"content": text}, None),
    last=lambda index: _delta(index, {}, "length"),
)
