"""The 500s of llama-server that are no failure of it, by the lengths of their bodies.

The text is not read, as bodies of responses do not pass the picker. So what is known is what
llama-server writes around a text, the lengths of the texts, and what kind of request got it. What a
server says whose text depends on the request, as that of a template or of tools, is left to what
else works there (`extproc.core.outliers.failure_evidence`).
"""

from typing import Final

from extproc.core.request import DAMAGED, MEDIA, Kind, Request
from extproc.runners.llama_server.error_texts import (
    NO_ANSWERS,
    NO_MESSAGES,
    OF_MEDIA,
    OVERFLOW_BODY_BYTES,
    SHARED_PROMPT,
    TOO_LONG,
    body_lengths,
)
from extproc.stream.envoy.codec import ResponseHead

ERROR: Final = 500

_TOO_LONG: Final = body_lengths(TOO_LONG)
_NO_ANSWERS: Final = body_lengths(NO_ANSWERS)
_SHARED_PROMPT: Final = body_lengths(SHARED_PROMPT)
_OF_MEDIA: Final = frozenset[int]().union(*map(body_lengths, OF_MEDIA))
_NO_MESSAGES: Final = body_lengths(NO_MESSAGES)


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
