"""When a request's first token came, as far as it is known: one answer for all who ask.

    no stream, or an error      with its headers: all of the answer came at once
    a stream                    with its headers, at a server where these come with first tokens
    looks saw its tokens        going back from them (see `generation_progress`)
    otherwise                   when it was expected, within what is possible

What is possible: not before the request was sent, the headers of its stream, the last look that
saw no token, nor so early that not even a slow answer of the asked length explains the rest; not
after the first look that saw a token, nor after the end of a whole answer.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.request import Kind

if TYPE_CHECKING:
    from extproc.core.prediction.latency import EndpointLatency, LatencyEstimate
    from extproc.core.scheduler.in_flight import InFlightRequest
    from extproc.core.slots.lease import Lease

NARROW = 0.25
"""An interval of that share of the time to its end, or less, is as good as a measured time."""
SLOWEST, SLOWEST_UNKNOWN = 1.5, 3.0
"""How many times as slow as its pace an answer may have come; at a server whose own pace was not
seen yet, as the fleet's."""


class TtftBounds(NamedTuple):
    """Monotonic seconds: not before `earliest_at`, not after `latest_at`, most likely then."""

    earliest_at: float
    likely_at: float
    latest_at: float

    def is_narrow(self, sent_at: float) -> bool:
        return self.latest_at - self.earliest_at <= NARROW * (self.latest_at - sent_at)


def so_far(lease: Lease, run: InFlightRequest, speed: LatencyEstimate) -> TtftBounds:
    """What headers and looks tell of a request that may still be running."""
    earliest_at, course = _earliest_at(lease, run), run.progress
    first = None if course is None else course.first_token(speed.token_s(1))
    if course is None or first is None:
        return TtftBounds(earliest_at, max(earliest_at, expected_at(lease, run, speed)), inf)
    latest_at = max(earliest_at, course.token_seen_at)
    return TtftBounds(earliest_at, min(max(earliest_at, first.at), latest_at), latest_at)


def at_end(
    lease: Lease,
    run: InFlightRequest,
    watch: EndpointLatency,
    speed: LatencyEstimate,
    ended_at: float,
) -> TtftBounds:
    """The same of an answer that was whole at `ended_at`."""
    if run.progress is not None and run.progress.token_seen_at <= ended_at:
        return so_far(lease, run, speed)
    earliest_at = min(_earliest_at(lease, run), ended_at)
    likely_at = ended_at
    request = run.request
    if request.kind is not Kind.GENERATION:
        earliest_at = ended_at
    elif request.max_tokens is not None:
        answer_s = request.max_tokens * speed.token_s(1)
        slowest = SLOWEST if watch.knows_pace else SLOWEST_UNKNOWN
        earliest_at = max(earliest_at, ended_at - slowest * answer_s)
        likely_at = max(earliest_at, ended_at - answer_s)
    window = TtftBounds(earliest_at, likely_at, ended_at)
    if window.is_narrow(lease.opened_at):
        return window
    likely_at = min(max(earliest_at, expected_at(lease, run, speed)), ended_at)
    return TtftBounds(earliest_at, likely_at, ended_at)


def expected_at(lease: Lease, run: InFlightRequest, speed: LatencyEstimate) -> float:
    """When it is expected, whatever was seen of it."""
    return lease.opened_at + speed.first_token_s(run.uncached_tokens)


def _earliest_at(lease: Lease, run: InFlightRequest) -> float:
    earliest_at = lease.opened_at
    if run.is_stream and run.answered_at is not None:
        earliest_at = run.answered_at
    return earliest_at if run.progress is None else max(earliest_at, run.progress.reading_until)
