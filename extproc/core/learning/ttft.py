"""The time of a request's first token, as far as it is known; the one source for all readers.

    no stream, or an error      with its headers: the whole response came at once
    a stream                    with its headers, at a server where these come with first tokens
    scrapes saw its tokens      computed back from them (see `generation_progress`)
    otherwise                   the expected time, within the bounds

Bounds: not before the request was sent, the headers of its stream, the last scrape that saw no
token, nor so early that not even a slow response of the requested length explains the rest; not
after the first scrape that saw a token, nor after the end of a complete response.
"""

from math import inf
from typing import NamedTuple

from extproc.core.learning.in_flight import InFlightRequest
from extproc.core.prediction.latency import EndpointLatency, LatencyEstimate
from extproc.core.request import Kind
from extproc.core.slots.lease import Lease

NARROW = 0.25
"""An interval of at most this share of the time to its end counts as a measured time."""
SLOWEST, SLOWEST_UNKNOWN = 1.5, 3.0
"""How many times slower than its rate a response may have come; the second, if only the fleet's
rate is known."""


class TtftBounds(NamedTuple):
    """Monotonic seconds: not before `earliest_at`, not after `latest_at`, probably `likely_at`."""

    earliest_at: float
    likely_at: float
    latest_at: float

    def is_narrow(self, sent_at: float) -> bool:
        return self.latest_at - self.earliest_at <= NARROW * (self.latest_at - sent_at)


def so_far(lease: Lease, run: InFlightRequest, estimate: LatencyEstimate) -> TtftBounds:
    """The bounds from headers and scrapes for a request that may still run."""
    earliest_at, progress = _earliest_at(lease, run), run.progress
    first = None if progress is None else progress.first_token(estimate.token_s(1))
    if progress is None or first is None:
        return TtftBounds(earliest_at, max(earliest_at, expected_at(lease, run, estimate)), inf)
    latest_at = max(earliest_at, progress.token_seen_at)
    return TtftBounds(earliest_at, min(max(earliest_at, first.at), latest_at), latest_at)


def at_end(
    lease: Lease,
    run: InFlightRequest,
    latency: EndpointLatency,
    estimate: LatencyEstimate,
    ended_at: float,
) -> TtftBounds:
    """The bounds for a response that was complete at `ended_at`."""
    if run.progress is not None and run.progress.token_seen_at <= ended_at:
        return so_far(lease, run, estimate)
    earliest_at = min(_earliest_at(lease, run), ended_at)
    likely_at = ended_at
    request = run.request
    if request.kind is not Kind.GENERATION:
        earliest_at = ended_at
    elif request.max_tokens is not None:
        answer_s = request.max_tokens * estimate.token_s(1)
        slowest = SLOWEST if latency.knows_pace else SLOWEST_UNKNOWN
        earliest_at = max(earliest_at, ended_at - slowest * answer_s)
        likely_at = max(earliest_at, ended_at - answer_s)
    bounds = TtftBounds(earliest_at, likely_at, ended_at)
    if bounds.is_narrow(lease.opened_at):
        return bounds
    likely_at = min(max(earliest_at, expected_at(lease, run, estimate)), ended_at)
    return TtftBounds(earliest_at, likely_at, ended_at)


def expected_at(lease: Lease, run: InFlightRequest, estimate: LatencyEstimate) -> float:
    """The expected time of the first token, independent of what was seen."""

    return lease.opened_at + estimate.first_token_s(run.uncached_tokens)


def _earliest_at(lease: Lease, run: InFlightRequest) -> float:
    earliest_at = lease.opened_at
    if run.is_stream and run.answered_at is not None:
        earliest_at = run.answered_at
    return earliest_at if run.progress is None else max(earliest_at, run.progress.prefill_until)
