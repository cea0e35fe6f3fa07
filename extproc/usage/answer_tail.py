"""Reads the token counts in a response whose body passes the picker.

The first and the last bytes are kept and searched once, at the end: a body is neither held nor
parsed. llama-server writes its counts there in every API, in an ordinary response as in the events
of a stream:

    "usage"    prompt_tokens, completion_tokens, or input_tokens, output_tokens; of these cached:
               cached_tokens, or beside input_tokens cache_read_input_tokens
    "timings"  cache_n + prompt_n, predicted_n

An embedding has them before its numbers, a stream of Anthropic's API those of its prompt in the
first event. Texts of a model cannot pass for them: quotes in a JSON string are escaped.
"""

import re
from typing import Final, NamedTuple

HEAD_BYTES: Final = 1024
TAIL_BYTES: Final = 4096
_EVENT: Final = b"data: "
_COUNT: Final = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens'
    rb'|cache_read_input_tokens|cache_n|prompt_n|predicted_n)"\s*:\s*(\d{1,12})\b'
)


class TokenUsage(NamedTuple):
    """The tokens of a prompt, cached ones included, and of its response; None where unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


NO_USAGE: Final = TokenUsage()


class AnswerTail:
    """The two ends of one response body, and the number of its events if it is a stream."""

    __slots__ = ("_head", "_known", "_tail", "events")

    def __init__(self, known: TokenUsage | None = None, events: int = 0) -> None:
        """`known` are the counts if another process has read the body, with its `events`."""
        self._known = known
        self._head = b""
        self._tail = b""
        self.events = events
        """At most one for each token that was sent, and few besides."""

    def add(self, part: bytes) -> None:
        """Take the next part of the body."""
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head + part)[:HEAD_BYTES]
        self._tail = (self._tail + part)[-TAIL_BYTES:]
        self.events += part.count(_EVENT)

    def usage(self) -> TokenUsage:
        """The counts, of which the last ones are those of the whole response."""
        if self._known is not None:
            return self._known
        found: dict[bytes, int] = {}
        for name, count in _COUNT.findall(self._head) + _COUNT.findall(self._tail):
            found[name] = int(count)
        prompt, cached = _prompt(found)
        generated = found.get(b"completion_tokens", found.get(b"output_tokens"))
        if generated is None:
            generated = found.get(b"predicted_n")
        return TokenUsage(prompt, generated, cached)


def _prompt(found: dict[bytes, int]) -> tuple[int | None, int | None]:
    """The tokens of the prompt, and how many of them were cached."""
    cached = found.get(b"cached_tokens", found.get(b"cache_n"))
    if b"prompt_tokens" in found:
        return found[b"prompt_tokens"], cached
    read = found.get(b"cache_read_input_tokens")
    if b"input_tokens" in found:
        # Anthropic's API counts the cached ones apart, that of OpenAI's responses does not.
        uncached = found[b"input_tokens"]
        return (uncached, cached) if read is None else (uncached + read, read)
    if b"prompt_n" in found:
        return found[b"prompt_n"] + found.get(b"cache_n", 0), cached
    return None, cached
