"""The texts of llama-server's 500s, and how it writes them in a body and at the end of a stream.

From its sources and from tries (`tests/stream/test_server_errors.py`). `{}` is a number.
"""

import re
from typing import Final

AROUND: Final = '{"error":{"code":500,"message":"","type":"server_error"}}'
"""What is written around each text."""

FULL: Final = "Context size has been exceeded."
"""The context that its slots share is full: all requests end so that run there."""
FULL_FOR_ONE: Final = (
    "got exception: speculative batch index {} is not inside the current sub-batch [{}, {})"
)
"""Where it decodes speculatively, one request ends so when the context is nearly full."""

TOO_LONG: Final = (
    "input ({} tokens) is too large to process. increase the physical batch size "
    "(current batch size: {})"
)
"""What is embedded or ranked is longer than a batch (`-ub`)."""
NO_ANSWERS: Final = "the current context does not support logits computation. skipping"
"""The model can only embed, which is as a server that was not started for it."""
SHARED_PROMPT: Final = "context shift cannot be used for shared prompt"
"""Several answers to one prompt are longer than the context."""
_HINT: Final = " - hint: if this is unexpected, you may need to provide the mmproj"
OF_MEDIA: Final = (
    *(f"{medium} input is not supported{_HINT}" for medium in ("image", "audio", "video")),
    "Failed to download image",
    "Invalid base64 value",
    "failed to process mtmd chunk",
)
"""An image or a sound that the model does not take, that is not to be had, or has no room."""
NO_MESSAGES: Final = "'messages' is required"
"""Of Anthropic's API; the others say it with 400."""

_MAX_DIGITS: Final = 7
"""Of a number in these texts."""


def body_lengths(text: str, digits: int = _MAX_DIGITS) -> frozenset[int]:
    """The bytes of a body with this text, whose numbers have at most these `digits`."""
    numbers = text.count("{}")
    least = len(AROUND) + len(text) - numbers
    return frozenset(range(least, least + numbers * (digits - 1) + 1))


OVERFLOW_BODY_BYTES: Final = body_lengths(FULL) | body_lengths(FULL_FOR_ONE, digits=3)


def _pattern(text: str) -> bytes:
    return rb"\d+".join(re.escape(part.encode()) for part in text.split("{}"))


OVERFLOW_EVENT: Final = re.compile(
    rb'(?:\A|\n)data: (?P<wrapped>\{"error":)?\{"code":500,"message":"(?:'
    + b"|".join(map(_pattern, (FULL, FULL_FOR_ONE)))
    + rb')","type":"server_error"\}(?(wrapped)\})\s*\Z'
)
"""The last event of a stream that ended because the context was full. In Anthropic's API the error
is not wrapped. A model's text has neither raw line breaks nor bare quotes."""
OVERFLOW_EVENT_BYTES: Final = 192
"""Longer than that event."""
