"""Whether a request got its first token as soon as its objective promised; see `ttft`.

A promise is judged once, as soon as its fate is certain: kept when the token cannot have come
later than promised, broken when it cannot have come sooner. What is still uncertain at the end
goes by the best estimate. Who leaves in time, and most likely before a token, was promised nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.scheduler.ttft import at_end, so_far
from extproc.core.slots.lease import LeaseEnd

if TYPE_CHECKING:
    from extproc.core.prediction.latency import LatencyEstimate
    from extproc.core.scheduler.in_flight import InFlightRequest
    from extproc.core.scheduler.state import State
    from extproc.core.scheduler.ttft import TtftBounds
    from extproc.core.slots.lease import Lease


def evaluate_headers(state: State, lease: Lease, run: InFlightRequest, now: float) -> None:
    """The response headers came: of a stream no first token comes before them."""
    is_whole = run.is_error or not run.is_stream
    if is_whole or state.latency.endpoint(lease.address).trusts_headers:
        run.first_token_at = now
    ttft_s = run.objective.ttft_s
    if ttft_s is not None:
        is_in_time = now - run.asked_at <= ttft_s
        if run.first_token_at is not None or not is_in_time:
            state.in_flight.record_slo(run, lease, is_in_time, now)


def evaluate_observation(
    state: State, lease: Lease, run: InFlightRequest, speed: LatencyEstimate, now: float
) -> None:
    """A look showed how far it is. Of a request without headers nobody knows yet whether its
    answer is a stream; but none comes before its first token."""
    if run.first_token_at is not None or run.progress is None:
        return
    window = so_far(lease, run, speed)
    if run.is_stream and run.progress.has_own_pace:
        run.first_token_at = window.likely_at
        window = window._replace(earliest_at=window.likely_at, latest_at=window.likely_at)
    ttft_s = run.objective.ttft_s
    if ttft_s is None:
        return
    if window.earliest_at - run.asked_at > ttft_s:
        state.in_flight.record_slo(run, lease, False, now)
    elif run.is_stream and window.latest_at - run.asked_at <= ttft_s:
        state.in_flight.record_slo(run, lease, True, now)


def evaluate_end(
    state: State, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float
) -> tuple[float | None, TtftBounds | None]:
    """It is over. Returns when its first token came, None if none did as far as is known; and
    what is possible, where that had to be worked out of an answer that is whole."""
    first_token_at, window = run.first_token_at, None
    if first_token_at is None and run.answered_at is not None:
        speed = state.latency.estimate(lease.address, now)
        if end is LeaseEnd.SERVED:
            watch = state.latency.endpoint(lease.address)
            window = at_end(lease, run, watch, speed, now)
            first_token_at = window.likely_at
        else:  # it broke off before, most likely, if the token was to be expected later
            likely_at = so_far(lease, run, speed).likely_at
            first_token_at = likely_at if likely_at <= now else None
    ttft_s = run.objective.ttft_s
    if ttft_s is not None:
        came_at = first_token_at
        if came_at is None and (end is LeaseEnd.SERVED or now - run.asked_at > ttft_s):
            came_at = now
        if came_at is not None:
            state.in_flight.record_slo(run, lease, came_at - run.asked_at <= ttft_s, now)
    return first_token_at, window
