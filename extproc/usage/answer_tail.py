"""Reads the token counts in a response whose body passes the picker, and how a stream failed.

The first and the last bytes are kept and searched once, at the end: a body is neither held nor
parsed. Servers write their counts there in every API, in an ordinary response as in the events of a
stream, or the lines of Ollama's:

    "usage"    prompt_tokens, completion_tokens, or input_tokens, output_tokens; of these cached:
               cached_tokens, or beside input_tokens cache_read_input_tokens
    "timings"  cache_n + prompt_n, predicted_n; prompt_ms, predicted_ms
    Ollama     prompt_eval_count, eval_count
    LM Studio  input_tokens, total_output_tokens

An embedding has them before its numbers, a stream of Anthropic's API those of its prompt in the
first event. Texts of a model cannot pass for them: quotes in a JSON string are escaped.
"""

import re
from typing import Final, NamedTuple

from extproc.runners.llama_server.error_texts import OVERFLOW_EVENT, OVERFLOW_EVENT_BYTES

HEAD_BYTES: Final = 1024
TAIL_BYTES: Final = 4096
_EVENT: Final = b"data: "
_LINE: Final = b'"done":false'
"""In each line of Ollama's but the last one."""
_COUNT: Final = re.compile(
    rb'"(prompt_(?:tokens|n|ms|eval_count)|predicted_(?:n|ms)|input_tokens|output_tokens'
    rb"|c(?:ompletion_tokens|ached_tokens|ache_(?:n|read_input_tokens))|eval_count"
    rb'|total_output_tokens)"\s*:\s*(\d{1,12})(\.\d{1,20})?\b'
)
_TIMES: Final = (b"prompt_ms", b"predicted_ms")


class TokenUsage(NamedTuple):
    """The tokens of a prompt, cached ones included, and of its response; and the seconds that the
    server says it took for each. None where unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_s: float | None = None
    generated_s: float | None = None


NO_USAGE: Final = TokenUsage()


class AnswerTail:
    """The two ends of one response body, and the number of its events if it is a stream."""

    __slots__ = ("_head", "_known", "_tail", "_was_overflow", "events")

    def __init__(
        self, known: TokenUsage | None = None, events: int = 0, *, was_overflow: bool = False
    ) -> None:
        """`known` are the counts if another process has read the body, with its `events` and
        whether it `was_overflow`."""
        self._known = known
        self._was_overflow = was_overflow
        self._head = b""
        self._tail = b""
        self.events = events
        """At most one for each token that was sent, and few besides."""

    def add(self, part: bytes) -> None:
        """Take the next part of the body."""
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head + part)[:HEAD_BYTES]
        self._tail = (self._tail + part)[-TAIL_BYTES:]
        self.events += part.count(_EVENT) + part.count(_LINE)

    def is_overflow(self) -> bool:
        """Whether the body is a stream that ended because the context of its server was full."""
        if self._was_overflow:
            return True
        return OVERFLOW_EVENT.search(self._tail[-OVERFLOW_EVENT_BYTES:]) is not None

    def usage(self) -> TokenUsage:
        """The counts, of which the last ones are those of the whole response."""
        if self._known is not None:
            return self._known
        found: dict[bytes, int] = {}
        took_s: dict[bytes, float] = {}
        for name, count, fraction in _COUNT.findall(self._head) + _COUNT.findall(self._tail):
            if name in _TIMES:
                took_s[name] = float(count + fraction) / 1000.0
            else:
                found[name] = int(count)
        prompt, cached = _prompt(found)
        generated = found.get(b"completion_tokens", found.get(b"output_tokens"))
        if generated is None:
            generated = found.get(b"predicted_n", found.get(b"eval_count"))
        if generated is None:
            generated = found.get(b"total_output_tokens")
        return TokenUsage(prompt, generated, cached, *map(took_s.get, _TIMES))


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
    return found.get(b"prompt_eval_count"), cached
