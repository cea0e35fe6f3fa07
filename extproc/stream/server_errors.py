"""The 500s of llama-server that are no failure of it, by the lengths of their bodies.

The text is not read, as bodies of responses do not pass the picker. So what is known is what
llama-server writes around a text, the lengths of the texts, and what kind of request got it. From
its sources and from tries (`tests/stream/test_server_errors.py`); what a server says whose text
depends on the request, as that of a template or of tools, is left to what else works there
(`extproc.core.outliers.failure_evidence`).
"""

from typing import Final

from extproc.core.request import DAMAGED, MEDIA, Kind, Request
from extproc.stream.envoy.codec import ResponseHead

ERROR: Final = 500
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


def _lengths(text: str, digits: int = _MAX_DIGITS) -> frozenset[int]:
    """The bytes of a body with this text, whose numbers have at most these `digits`."""
    numbers = text.count("{}")
    least = len(AROUND) + len(text) - numbers
    return frozenset(range(least, least + numbers * (digits - 1) + 1))


OVERFLOW_BODY_BYTES: Final = _lengths(FULL) | _lengths(FULL_FOR_ONE, digits=3)
_TOO_LONG: Final = _lengths(TOO_LONG)
_NO_ANSWERS: Final = _lengths(NO_ANSWERS)
_SHARED_PROMPT: Final = _lengths(SHARED_PROMPT)
_OF_MEDIA: Final = frozenset[int]().union(*map(_lengths, OF_MEDIA))
_NO_MESSAGES: Final = _lengths(NO_MESSAGES)


def may_be_overflow(response: ResponseHead) -> bool:
    """Whether it may say that the context which the server's slots share was full. Streams cannot:
    their status was sent before."""
    return _is_error(response) and response.body_bytes in OVERFLOW_BODY_BYTES


def is_about_request(response: ResponseHead, request: Request) -> bool:
    """Whether it says, in JSON, what is wrong with this request, and nothing about its server."""
    if not (_is_error(response) and response.is_json):
        return False
    if request.has_trait(DAMAGED):
        return True  # llama-server answers 500 to what is no JSON
    length = response.body_bytes
    if request.kind is Kind.EMBEDDING:
        return length in _TOO_LONG
    return (
        length in _NO_ANSWERS
        or (length in _OF_MEDIA and request.has_trait(MEDIA))
        or (length in _SHARED_PROMPT and request.weight_slots > 1)
        or (length in _NO_MESSAGES and request.path.endswith("/messages"))
    )


def _is_error(response: ResponseHead) -> bool:
    return not response.is_local_reply and response.status == ERROR
