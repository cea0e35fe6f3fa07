"""Evaluates whether a request met the SLO of its objective; see `ttft`.

An SLO is evaluated once, as soon as the result is certain: met if the first token cannot have come
later than its limit, missed if it cannot have come sooner. If that is still uncertain at the end,
the best estimate decides. A request whose client leaves in time, and most likely before a token,
does not count.
"""

from extproc.core.learning.in_flight import InFlight, InFlightRequest
from extproc.core.learning.ttft import TtftBounds, at_end, so_far
from extproc.core.prediction.latency import LatencyEstimate, LatencyModel
from extproc.core.slots.lease import Lease, LeaseEnd


class SloEvaluation:
    """Every call is O(1)."""

    def __init__(self, latency: LatencyModel, in_flight: InFlight) -> None:
        self._latency = latency
        self._in_flight = in_flight

    def evaluate_headers(self, lease: Lease, run: InFlightRequest, now: float) -> None:
        """The response headers came: no first token of a stream comes before them."""
        is_whole = run.is_error or not run.is_stream
        if is_whole or self._latency.endpoint(lease.address).trusts_headers:
            run.first_token_at = now
        ttft_s = run.objective.ttft_s
        if ttft_s is not None:
            is_in_time = now - run.arrived_at <= ttft_s
            if run.first_token_at is not None or not is_in_time:
                self._in_flight.record_slo(run, lease, is_in_time, now)

    def evaluate_observation(
        self, lease: Lease, run: InFlightRequest, estimate: LatencyEstimate, now: float
    ) -> None:
        """A scrape showed its progress. Before the headers it is not known whether the response is
        a stream; but no response comes before its first token."""
        if run.first_token_at is not None or run.progress is None:
            return
        bounds = so_far(lease, run, estimate)
        if run.is_stream and run.progress.has_own_pace:
            run.first_token_at = bounds.likely_at
            bounds = bounds._replace(earliest_at=bounds.likely_at, latest_at=bounds.likely_at)
        ttft_s = run.objective.ttft_s
        if ttft_s is None:
            return
        if bounds.earliest_at - run.arrived_at > ttft_s:
            self._in_flight.record_slo(run, lease, False, now)
        elif run.is_stream and bounds.latest_at - run.arrived_at <= ttft_s:
            self._in_flight.record_slo(run, lease, True, now)

    def evaluate_end(
        self, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float
    ) -> tuple[float | None, TtftBounds | None]:
        """The request ended. Returns the time of its first token, None if it had none or that is
        not known; and the bounds, if they were computed for a complete response."""
        first_token_at, bounds = run.first_token_at, None
        if first_token_at is None and run.answered_at is not None:
            estimate = self._latency.estimate(lease.address, now)
            if end is LeaseEnd.SERVED:
                latency = self._latency.endpoint(lease.address)
                bounds = at_end(lease, run, latency, estimate, now)
                first_token_at = bounds.likely_at
            else:  # most likely it broke off before the token if that was expected later
                likely_at = so_far(lease, run, estimate).likely_at
                first_token_at = likely_at if likely_at <= now else None
        ttft_s = run.objective.ttft_s
        if ttft_s is not None:
            came_at = first_token_at
            if came_at is None and (end is LeaseEnd.SERVED or now - run.arrived_at > ttft_s):
                came_at = now
            if came_at is not None:
                self._in_flight.record_slo(run, lease, came_at - run.arrived_at <= ttft_s, now)
        return first_token_at, bounds
