"""Reads a server's own counts of tokens from its /metrics.

Its gauges are averages since /metrics was read last, also by others; its counters are sums, which
reading does not change. Both are printed with six digits: 1234567 is shown as 1.23457e+06.
"""

import re
from typing import Final

from extproc.core.observation import MAX_COUNT, Counter, TokenCounters
from extproc.runners.answers import ParseError

PATH: Final = "/metrics"
MAX_BYTES: Final = 65_536
DIGITS: Final = 6
_COUNTER: Final = re.compile(
    rb"^llamacpp:(prompt_tokens_total|prompt_tokens_cached_total|tokens_predicted_total) "
    rb"(\d{1,15}|\d(?:\.\d{1,5})?e\+\d{2})\r?$",
    re.MULTILINE,
)


def parse_counters(body: bytes, began_at: float) -> TokenCounters:
    """Parse /metrics, which was requested at `began_at`. Raises only `ParseError`."""
    if len(body) > MAX_BYTES:
        raise ParseError(f"/metrics has more than {MAX_BYTES} bytes")
    found = {name: _counter(value) for name, value in _COUNTER.findall(body)}
    try:
        return TokenCounters(
            began_at=began_at,
            processed=found[b"prompt_tokens_total"],
            cached=found[b"prompt_tokens_cached_total"],
            generated=found[b"tokens_predicted_total"],
        )
    except KeyError:
        raise ParseError("/metrics lacks a count of tokens") from None


def _counter(text: bytes) -> Counter:
    value = round(float(text))
    if value > MAX_COUNT:
        raise ParseError("/metrics has an impossible count")
    rounding = 0 if b"e" not in text else 10 ** (len(str(value)) - DIGITS) // 2
    return Counter(value, rounding)
