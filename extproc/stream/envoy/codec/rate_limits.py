"""The headers by which OpenAI's API reports rate limits, as its SDKs read them."""

from collections.abc import Mapping
from typing import Final, assert_never

from extproc.core.budgets import Period
from extproc.core.client_limits import RETRY_S, Exceeded, Limited, Standing, requests_text
from extproc.core.rejection import Reason
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.codec.replies import NO_HEADERS, rejection

NO_RETRY: Final[Mapping[str, str]] = {"x-should-retry": "false"}
"""OpenAI's and Anthropic's SDKs do not try again then: they would not wait until the next day."""


def rate_limit_headers(standing: Standing) -> dict[str, str]:
    """`x-ratelimit-limit-requests` and so on, for the limits that there are."""
    headers: dict[str, str] = {}
    limit = standing.limit
    if limit.requests is not None and standing.remaining_requests is not None:
        headers["x-ratelimit-limit-requests"] = str(limit.requests)
        headers["x-ratelimit-remaining-requests"] = str(standing.remaining_requests)
        is_full = standing.remaining_requests == 0
        headers["x-ratelimit-reset-requests"] = duration(RETRY_S if is_full else 0.0)
    if limit.tokens_per_minute is not None and standing.remaining_tokens is not None:
        headers["x-ratelimit-limit-tokens"] = str(limit.tokens_per_minute)
        headers["x-ratelimit-remaining-tokens"] = str(standing.remaining_tokens)
        headers["x-ratelimit-reset-tokens"] = duration(standing.reset_tokens_s)
    return headers


def duration(seconds: float) -> str:
    """As OpenAI writes it: `0s`, `17ms`, `1.5s`, `6m0s`."""
    ms = round(seconds * 1000)
    if 0 < ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    rest = f"{ms / 1000:g}s"
    return f"{minutes}m{rest}" if minutes else rest


def over_limit(exceeded: Exceeded, *, is_plain: bool = False) -> pb.ProcessingResponse:
    """Reject a request of a client that has reached a limit."""
    is_final = exceeded.what is Limited.BUDGET
    return rejection(
        reason_of(exceeded),
        exceeded.retry_after_s,
        limit_text(exceeded),
        {**rate_limit_headers(exceeded.standing), **(NO_RETRY if is_final else NO_HEADERS)},
        is_plain=is_plain,
    )


def reason_of(exceeded: Exceeded) -> Reason:
    """The reason of that rejection."""
    is_final = exceeded.what is Limited.BUDGET
    return Reason.BUDGET_USED_UP if is_final else Reason.RATE_LIMITED


def limit_text(exceeded: Exceeded) -> str:
    """What the client reads about its limit."""
    limit = exceeded.standing.limit
    match exceeded.what:
        case Limited.REQUESTS:
            requests = requests_text(limit.requests)
            return f"This API key may have {requests} at once; wait for one to end."
        case Limited.QUEUED:
            return f"All slots are busy, and this API key may queue {requests_text(limit.queued)}."
        case Limited.TOKENS:
            return (
                f"This API key may use {limit.tokens_per_minute} tokens a minute, which it has "
                "used up."
            )
        case Limited.BUDGET:
            return (
                f"You exceeded your current quota: this API key may use {_budget_text(exceeded)}, "
                f"by UTC, and has used them up. The next {_period(exceeded).value} begins at 0:00 "
                "UTC."
            )
        case Limited.RESERVED:
            return (
                f"This API key may use {_budget_text(exceeded)}, by UTC, and its running requests "
                "may need the rest; wait for one to end, or give them a smaller max_tokens."
            )
        case _:
            assert_never(exceeded.what)


def _period(exceeded: Exceeded) -> Period:
    assert exceeded.period is not None
    return exceeded.period


def _budget_text(exceeded: Exceeded) -> str:
    period = _period(exceeded)
    budget = exceeded.standing.limit.budget_of(period)
    assert budget is not None
    parts = []
    if budget.tokens is not None:
        parts.append(f"{budget.tokens} tokens")
    if budget.cost is not None:
        parts.append(f"{budget.cost:.2f} in cost")
    return f"{' and '.join(parts)} a {period.value}"
