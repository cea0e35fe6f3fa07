"""Attributes the end of each request to its server or to the request itself.

Feeds outlier detection, which ejects endpoints, and the guard against poison requests.
"""

from extproc.core.learning.in_flight import InFlight, InFlightRequest
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.outliers.failure_evidence import LOST_CONNECTION, Fault
from extproc.core.outliers.outlier_detection import OutlierDetection
from extproc.core.outliers.poison_requests import PoisonGuard
from extproc.core.request import Request
from extproc.core.slots.lease import Lease, LeaseEnd, LeaseState
from extproc.core.slots.ledger import Ledger


class Attribution:
    """Methods that return `bool` return whether an endpoint's eligibility for picks changed."""

    def __init__(
        self, ledger: Ledger, in_flight: InFlight, outliers: OutlierDetection, poison: PoisonGuard
    ) -> None:
        self._ledger = ledger
        self._in_flight = in_flight
        self._outliers = outliers
        self._poison = poison

    def request_failed(self, lease: Lease, fault: Fault, now: float) -> bool:
        """A request failed at its server; only the first call for a lease counts."""
        run = self._in_flight.get(lease)
        if run is None or run.has_failed:
            return False
        run.has_failed = True
        return self._failed(lease, run.request, fault, now)

    def _failed(self, lease: Lease, request: Request, fault: Fault, now: float) -> bool:
        if fault in LOST_CONNECTION:
            self._poison.lost_connection(request.fingerprint, lease.address, now)
        beside = (
            (other, its_run.request)
            for other in self._ledger.endpoint_slots(lease.address).leases.values()
            if other.state is LeaseState.OPEN and not other.is_uploading
            if (its_run := self._in_flight.get(other)) is not None and not its_run.has_failed
        )
        return self._outliers.failed(lease, request, fault, now, beside)

    def lease_ended(self, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
        """A lease was released: only a complete response counts in favour of the endpoint."""
        is_good = end is LeaseEnd.SERVED and run.answered_at is not None and not run.is_error
        if is_good and not run.has_failed:
            self._succeeded(lease, run.request, now)
        self._outliers.lease_ended(lease, now)

    def response_ended(
        self, lease: Lease, request: Request, now: float, *, is_broken: bool
    ) -> bool:
        """A success whose lease was released at its headers has passed, or its server broke it
        off."""
        if is_broken:
            has_changed = self._failed(lease, request, Fault.BROKEN_ANSWER, now)
        else:
            has_changed = self._succeeded(lease, request, now)
        return self._outliers.lease_ended(lease, now) or has_changed

    def _succeeded(self, lease: Lease, request: Request, now: float) -> bool:
        self._poison.succeeded(request.fingerprint)
        return self._outliers.served(lease, request, now)

    def observed(self, observation: Observation, now: float, *, is_replaced: bool) -> None:
        """A scrape showed whether the server is up. If it was replaced, `PoisonGuard` has heard."""
        if observation.status is ScrapeStatus.UNREACHABLE:
            self._poison.died(observation.address, now)
        elif observation.status is not ScrapeStatus.FAILED and not is_replaced:
            self._poison.seen_alive(observation.address)
