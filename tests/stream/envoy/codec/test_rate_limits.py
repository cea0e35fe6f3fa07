"""Claims about extproc/stream/envoy/codec/rate_limits.py."""

from __future__ import annotations

import pytest

from extproc.core.budgets import Budget
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.rejection import Reason
from extproc.stream.envoy.codec.rate_limits import (
    duration,
    limit_text,
    over_limit,
    rate_limit_headers,
    reason_of,
)


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


def test_a_budget_is_rejected_as_openai_does() -> None:
    """With a word for SDKs not to try again; what running requests reserve is no such end."""
    limits = ClientLimits(
        {
            "web": ClientLimit(daily=Budget(tokens=1000)),
            "paid": ClientLimit(monthly=Budget(tokens=10, cost=2.5)),
        }
    )
    limits.spent("paid", 1, 0.0, 2.5)
    exceeded = limits.exceeded("paid", 0.0)
    assert exceeded is not None and reason_of(exceeded) is Reason.BUDGET_USED_UP
    assert limit_text(exceeded) == (
        "You exceeded your current quota: this API key may use 10 tokens and 2.50 in cost a month, "
        "by UTC, and has used them up. The next month begins at 0:00 UTC."
    )
    reply = over_limit(exceeded).immediate_response
    headers = {each.header.key: each.header.raw_value for each in reply.headers.set_headers}
    assert reply.status.code == 429 and headers["x-should-retry"] == b"false"
    assert headers["retry-after"] == b"61" and b'"insufficient_quota"' in reply.body
    limits.begin("web", "a", 0.0, 1000)
    exceeded = limits.exceeded("web", 0.0)
    assert exceeded is not None and reason_of(exceeded) is Reason.RATE_LIMITED
    assert "1000 tokens a day" in limit_text(exceeded)
    reply = over_limit(exceeded).immediate_response
    assert not [one for one in reply.headers.set_headers if one.header.key == "x-should-retry"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.017, "17ms"), (1.0, "1s"), (1.5, "1.5s"), (59.9999, "1m0s"), (360.0, "6m0s")],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
