"""Attributes the end of each request to its server or to the request itself.

Feeds outlier detection, which ejects endpoints, and the guard against poison requests.
"""

from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.outliers.failure_evidence import LOST_CONNECTION, Fault
from extproc.core.request import Request
from extproc.core.scheduler.in_flight import InFlightRequest
from extproc.core.scheduler.state import State
from extproc.core.slots.lease import Lease, LeaseEnd, LeaseState


def blame(state: State, lease: Lease, fault: Fault, now: float) -> bool:
    """A request failed at its server; only the first call for a lease counts. Returns whether the
    endpoint's eligibility for picks changed."""
    run = state.in_flight.get(lease)
    if run is None or run.has_failed:
        return False
    run.has_failed = True
    return _fail(state, lease, run.request, fault, now)


def _fail(state: State, lease: Lease, request: Request, fault: Fault, now: float) -> bool:
    if fault in LOST_CONNECTION:
        state.poison.lost_connection(request.fingerprint, lease.address, now)
    beside = (
        (other, its_run.request)
        for other in state.ledger.endpoint_slots(lease.address).leases.values()
        if other.state is LeaseState.OPEN and not other.is_uploading
        if (its_run := state.in_flight.get(other)) is not None and not its_run.has_failed
    )
    return state.outliers.failed(lease, request, fault, now, beside)


def credit(state: State, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
    """A lease was released: only a complete response counts in favour of the endpoint."""
    is_good = end is LeaseEnd.SERVED and run.answered_at is not None and not run.is_error
    if is_good and not run.has_failed:
        _credit(state, lease, run.request, now)
    state.outliers.ended(lease, now)


def conclude(state: State, lease: Lease, request: Request, now: float, *, is_broken: bool) -> bool:
    """A success whose lease was released at its headers has passed, or its server broke it off.
    Returns whether the endpoint's eligibility for picks changed."""
    if is_broken:
        has_changed = _fail(state, lease, request, Fault.BROKEN_ANSWER, now)
    else:
        has_changed = _credit(state, lease, request, now)
    return state.outliers.ended(lease, now) or has_changed


def _credit(state: State, lease: Lease, request: Request, now: float) -> bool:
    state.poison.succeeded(request.fingerprint)
    return state.outliers.served(lease, request, now)


def seen(state: State, observation: Observation, now: float, *, is_replaced: bool) -> None:
    """A scrape showed whether the server is up, and whether it is still the same process."""
    address = observation.address
    if is_replaced:
        state.outliers.replaced(address, now)
    if is_replaced or observation.status is ScrapeStatus.UNREACHABLE:
        state.poison.died(address, now)
    elif observation.status is not ScrapeStatus.FAILED:
        state.poison.seen_alive(address)
