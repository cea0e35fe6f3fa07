"""Claims about extproc/stream/envoy/codec/rate_limits.py."""

from __future__ import annotations

import pytest

from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.stream.envoy.codec.rate_limits import duration, rate_limit_headers


def test_headers_of_the_limits_that_there_are() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=2, tokens_per_minute=600)})
    limits.begin("web", "a", 0.0)
    limits.spent("web", 150, 0.0)
    standing = limits.standing("web", 0.0)
    assert standing is not None
    assert rate_limit_headers(standing) == {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "0s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "450",
        "x-ratelimit-reset-tokens": "15s",
    }
    limits = ClientLimits({"web": ClientLimit(queued=3)})
    standing = limits.standing("web", 0.0)
    assert standing is not None and rate_limit_headers(standing) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.017, "17ms"), (1.0, "1s"), (1.5, "1.5s"), (59.9999, "1m0s"), (360.0, "6m0s")],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
