"""Reads the token counts at the end of a response whose body passes the picker.

Only in full duplex do response bodies pass; Envoy's other modes send none. The last bytes are kept
and searched once, at the end: a body is neither held nor parsed. llama-server writes its counts
there in every API, in an ordinary response as in the last event of a stream:

    "usage"    prompt_tokens, completion_tokens, or input_tokens, output_tokens
    "timings"  cache_n + prompt_n, predicted_n

Texts of a model cannot pass for them: quotes in a JSON string are escaped.
"""

import re
from typing import Final, NamedTuple

TAIL_BYTES: Final = 4096
_COUNT: Final = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cache_n|prompt_n|predicted_n)"'
    rb"\s*:\s*(\d{1,12})\b"
)


class TokenUsage(NamedTuple):
    """The tokens of a prompt, cached ones included, and of its response; None where unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None


NO_USAGE: Final = TokenUsage()


class AnswerTail:
    """The end of one response body."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def add(self, part: bytes) -> None:
        """Take the next part of the body."""
        self._tail = (self._tail + part)[-TAIL_BYTES:]

    def usage(self) -> TokenUsage:
        """The counts, of which the last ones are those of the whole response."""
        found: dict[bytes, int] = {}
        for name, count in _COUNT.findall(self._tail):
            found[name] = int(count)
        prompt = found.get(b"prompt_tokens", found.get(b"input_tokens"))
        generated = found.get(b"completion_tokens", found.get(b"output_tokens"))
        if prompt is None and b"prompt_n" in found:
            prompt = found[b"prompt_n"] + found.get(b"cache_n", 0)
        if generated is None:
            generated = found.get(b"predicted_n")
        return TokenUsage(prompt, generated)
