"""Attributes the end of each request to its server or to the request itself.

Feeds outlier detection, which ejects endpoints, and the guard against poison requests.
"""

from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.outliers.failure_evidence import LOST_CONNECTION, Fault
from extproc.core.scheduler.in_flight import InFlightRequest
from extproc.core.scheduler.state import State
from extproc.core.slots.lease import Lease, LeaseEnd


def blame(state: State, lease: Lease, fault: Fault, now: float) -> bool:
    """A request failed at its server; only the first call for a lease counts. Returns whether the
    endpoint's eligibility for picks changed."""
    run = state.in_flight.get(lease)
    if run is None or run.has_failed:
        return False
    run.has_failed = True
    if fault in LOST_CONNECTION:
        state.poison.lost_connection(run.request.fingerprint, lease.address, now)
    return state.outliers.failed(lease, run.request, fault, now)


def credit(state: State, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
    """A lease was released: only a complete response counts in favour of the endpoint."""
    is_good = end is LeaseEnd.SERVED and run.answered_at is not None and not run.is_error
    if is_good and not run.has_failed:
        state.poison.succeeded(run.request.fingerprint)
        state.outliers.served(lease, run.request, now)
    state.outliers.ended(lease, now)


def seen(state: State, observation: Observation, now: float, *, is_replaced: bool) -> None:
    """A scrape showed whether the server is up, and whether it is still the same process."""
    address = observation.address
    if is_replaced:
        state.outliers.replaced(address, now)
    if is_replaced or observation.status is ScrapeStatus.UNREACHABLE:
        state.poison.died(address, now)
    elif observation.status is not ScrapeStatus.FAILED:
        state.poison.seen_alive(address)
