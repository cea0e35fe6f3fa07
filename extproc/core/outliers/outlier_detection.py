"""Detects endpoints that fail requests while they look healthy, and ejects them.

`failure_evidence` decides which failures count, and `ejection` how an endpoint is readmitted. This
module decides whether an endpoint may be ejected:
  - at most `max_ejected_percent` of the serving endpoints are ejected at the same time;
  - another endpoint serves the same models and fails at most half as often.
So a fleet of one is never ejected, and no endpoint is while all fail alike: then clients get the
servers' errors. An ejected endpoint is readmitted if no other endpoint is left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.learner import Learner
from extproc.core.observation import Issue
from extproc.core.outliers.ejection import Backoff, Ejection, EjectionState
from extproc.core.outliers.failure_evidence import (
    CONNECTION,
    FailedRequests,
    Failure,
    FailureEvidence,
    Fault,
    RequestKind,
    Running,
)
from extproc.core.request import Request
from extproc.core.slots.lease import Lease

_WORDS: Final = {
    Fault.SERVER_ERROR: "got a server error (5xx)",
    Fault.RESET: "lost their connection before any response",
    Fault.TIMEOUT: "got no response in time",
    Fault.BROKEN_ANSWER: "lost their connection in the middle of the response",
    Fault.UNAVAILABLE: "could not connect or got 503",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierOptions:
    """`failures` in a row eject an endpoint; 0 disables outlier detection."""

    failures: int = 3
    backoff: Backoff = field(default_factory=Backoff)
    max_ejected_percent: int = 50


class OutlierDetection(Learner):
    """Live state, updated by the dispatcher. Sets `is_ejected` and the issue of its endpoints.

    Methods that return `bool` return whether an endpoint's eligibility for picks changed. O(1) a
    call without failures; an ejection is O(fleet).
    """

    def __init__(
        self,
        fleet: Fleet,
        options: OutlierOptions,
        announce: Callable[[Address, Issue | None], None],
    ) -> None:
        """`announce` hears of each ejection, with its reason, and readmission, with None."""
        self._fleet = fleet
        self._announce = announce
        self.options = options
        self._evidence: dict[Address, FailureEvidence] = {}
        self._ejections: dict[Address, Ejection] = {}
        self._requests = FailedRequests()
        self.totals: dict[Address, dict[Fault, int]] = {}
        """Ejections by endpoint and cause."""

    def ejection(self, address: Address) -> Ejection | None:
        """The ejection state of an endpoint, None if it never failed."""
        return self._ejections.get(address)

    def ejection_reason(self, address: Address, now: float) -> str:
        """Why it gets no requests, for display."""
        ejection = self._ejections[address]
        cause = "" if ejection.cause is None else f" after {ejection.cause.value} failures"
        if ejection.due_at is None or ejection.state is EjectionState.TRIAL:
            return f"it is ejected{cause}, and its trial request has not ended"
        return f"it is ejected{cause}; a trial request is due in {ejection.due_at - now:.1f} s"

    # Requests

    def picked(self, lease: Lease, request: Request, now: float) -> bool:
        """A lease was opened: if a trial is due, this is it. Returns whether it is."""
        if not self._ejections:
            return False
        ejection = self._ejections.get(lease.address)
        if ejection is None or ejection.state is not EjectionState.TRIAL_DUE:
            return False
        ejection.begin_trial(lease.id, _kind_of(lease, request), now)
        self._mark(lease.address, ejection)
        return True

    def moved(self, lease_id: int, picked: Address, _served: Address, now: float) -> None:
        """Another endpoint than the picked one served: a trial at the picked one has no result."""
        self._conclude_trial(lease_id, picked, now, is_passed=False)

    def responded(self, lease: Lease, request: Request, now: float, *, is_whole: bool) -> bool:
        """The headers of a success came, and the complete response if `is_whole`."""
        self._requests.succeeded(request.fingerprint)
        self._evidence_of(lease.address).responded(_kind_of(lease, request), lease.opened_at, now)
        return is_whole and self._conclude_trial(lease.id, lease.address, now, is_passed=True)

    def served(self, lease: Lease, request: Request, now: float) -> bool:
        """A complete response without an error came."""
        self._requests.succeeded(request.fingerprint)
        evidence = self._evidence.get(lease.address)
        if evidence is not None and evidence.failures:
            evidence.served(_kind_of(lease, request), lease.opened_at)
        if not self._ejections:
            return False
        ejection = self._ejections.get(lease.address)
        if ejection is not None and ejection.state is EjectionState.HEALTHY:
            if lease.opened_at >= ejection.since:
                ejection.served()
            return False
        return self._conclude_trial(lease.id, lease.address, now, is_passed=True)

    def failed(
        self,
        lease: Lease,
        request: Request,
        fault: Fault,
        now: float,
        beside: Iterable[tuple[Lease, Request]] = (),
    ) -> bool:
        """A request failed at its server, which works on the requests `beside` it."""
        if not self.options.failures:
            return False
        kind, sent_at = _kind_of(lease, request), lease.opened_at
        failure = Failure(kind, fault, request.fingerprint, sent_at, now - sent_at)
        running = [
            Running(_kind_of(other, its_request), other.opened_at)
            for other, its_request in beside
            if other is not lease
        ]
        return self._record_failure(lease.address, failure, lease.id, now, running)

    def lease_ended(self, lease: Lease, now: float) -> bool:
        """A lease was released; a trial without a result until now has none."""
        return bool(self._ejections) and self._conclude_trial(
            lease.id, lease.address, now, is_passed=False
        )

    def connect_failed(self, endpoint: Endpoint, now: float) -> bool:
        """Envoy got no connection, or 503. Counts if the endpoint looked healthy: one that is down
        gets no requests anyway."""
        if not self.options.failures or not endpoint.is_serving:
            return False
        failure = Failure(CONNECTION, Fault.UNAVAILABLE, 0, now, 0.0)
        ejection = self._ejections.get(endpoint.address)
        trial_id = None if ejection is None else ejection.trial_id
        return self._record_failure(endpoint.address, failure, trial_id, now)

    # Fleet and time

    def replaced(self, address: Address, now: float) -> None:
        """A new process runs there: the old failures prove little, so a trial is due at once."""
        self._evidence.pop(address, None)
        ejection = self._ejections.get(address)
        if ejection is not None and ejection.state is not EjectionState.HEALTHY:
            ejection.make_trial_due(now)
            self._mark(address, ejection)

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet."""
        self._evidence.pop(address, None)
        self._ejections.pop(address, None)
        self.totals.pop(address, None)

    def advance(self, now: float) -> list[Address]:
        """Make the transitions that are due; returns the endpoints that are pickable again."""
        changed = []
        for address, ejection in self._ejections.items():
            kind, sent_at = ejection.trial_kind, ejection.since
            if ejection.advance(now):
                if kind is not None:  # it ran longer than immediate failures
                    self._evidence_of(address).responded(kind, sent_at, now)
                self._mark(address, ejection)
                changed.append(address)
        return changed

    def next_expiry(self) -> float | None:
        """When `advance` must be called next, or None. O(endpoints that ever failed)."""
        due = [each.due_at for each in self._ejections.values() if each.due_at is not None]
        return min(due, default=None)

    def readmit_the_last(self, now: float) -> list[Address]:
        """Readmit and return the endpoints without which no endpoint is left."""
        readmitted = []
        for address, ejection in self._ejections.items():
            endpoint = self._fleet.get(address)
            if endpoint is None or not ejection.is_out or not endpoint.is_usable:
                continue
            if self._has_substitute(endpoint, ejection.models):
                continue
            ejection.readmit(now)
            self._mark(address, ejection)
            readmitted.append(address)
        return readmitted

    @property
    def is_any_out(self) -> bool:
        """Whether `readmit_the_last` can have an effect."""
        return any(ejection.is_out for ejection in self._ejections.values())

    # Decisions

    def _record_failure(
        self,
        address: Address,
        failure: Failure,
        lease_id: int | None,
        now: float,
        running: Sequence[Running] = (),
    ) -> bool:
        self._requests.failed(failure.fingerprint, address)
        evidence = self._evidence_of(address)
        ejection = self._ejections.get(address)
        if ejection is not None and lease_id is not None and ejection.trial_id == lease_id:
            return self._end_trial(address, ejection, evidence, failure, now)
        if ejection is not None and (ejection.is_out or failure.sent_at < ejection.since):
            return False  # it was sent before the ejection
        evidence.failed(failure)
        since = 0.0 if ejection is None else ejection.since
        counted = evidence.counted(
            self._requests, since, now, running, partial(self._works_elsewhere, address)
        )
        threshold = self.options.failures if ejection is None else ejection.threshold
        if len(counted) < threshold or not self._may_eject(address, counted, now):
            return False
        if ejection is None:
            ejection = Ejection(self.options.backoff, self.options.failures)
            self._ejections[address] = ejection
        self._eject(address, ejection, counted, now)
        return True

    def _works_elsewhere(self, address: Address, kind: RequestKind, since: float) -> bool:
        """Whether another pickable endpoint has answered this kind since then, and does not fail
        it: then not the kind is to blame."""
        return any(
            other != address
            and evidence.works(kind, since)
            and (endpoint := self._fleet.get(other)) is not None
            and endpoint.is_pickable
            for other, evidence in self._evidence.items()
        )

    def _evidence_of(self, address: Address) -> FailureEvidence:
        evidence = self._evidence.get(address)
        if evidence is None:
            evidence = self._evidence[address] = FailureEvidence()
        return evidence

    def _end_trial(
        self,
        address: Address,
        ejection: Ejection,
        evidence: FailureEvidence,
        failure: Failure,
        now: float,
    ) -> bool:
        evidence.failed(failure)
        counted = evidence.counted(self._requests, ejection.since, now)
        if failure in counted:
            self._eject(address, ejection, counted, now)
            return False  # it was ejected before
        ejection.make_trial_due(now)
        self._mark(address, ejection)
        return True

    def _eject(
        self, address: Address, ejection: Ejection, failures: list[Failure], now: float
    ) -> None:
        ejection.eject(failures, now)
        totals, fault = self.totals.setdefault(address, {}), failures[-1].fault
        totals[fault] = totals.get(fault, 0) + 1
        self._mark(address, ejection)

    def _conclude_trial(
        self, lease_id: int, address: Address, now: float, *, is_passed: bool
    ) -> bool:
        """If the lease is the trial there: it is passed, or has no result."""
        ejection = self._ejections.get(address)
        if ejection is None or ejection.trial_id != lease_id:
            return False
        if is_passed:
            ejection.readmit(now)
        else:
            ejection.make_trial_due(now)
        self._mark(address, ejection)
        return True

    def _mark(self, address: Address, ejection: Ejection) -> None:
        """Update the endpoint, and announce an ejection or a readmission."""
        endpoint = self._fleet.get(address)
        if endpoint is None:
            return
        before, issue = endpoint.ejection_issue, None
        if ejection.state is not EjectionState.HEALTHY and ejection.cause is not None:
            issue = _issue(ejection.failures, ejection.cause)
        endpoint.is_ejected = ejection.is_out
        endpoint.ejection_issue = issue
        if (before is None) is not (issue is None):
            self._announce(address, issue)

    def _may_eject(self, address: Address, failures: list[Failure], now: float) -> bool:
        endpoint = self._fleet.get(address)
        if endpoint is None:
            return False
        serving = out = 0
        for other in self._fleet:
            if other.is_usable and _may_replace(other, endpoint):
                serving += 1
                out += other.is_ejected
        if (out + 1) * 100 > serving * self.options.max_ejected_percent:
            return False
        models = frozenset(failure.kind.model for failure in failures) - {None}
        return self._has_substitute(endpoint, models, len(failures), now)

    def _has_substitute(
        self,
        endpoint: Endpoint,
        models: frozenset[str | None],
        failures: int | None = None,
        now: float = 0.0,
    ) -> bool:
        """Whether other endpoints are pickable for these models; with `failures`, only those that
        fail at most half as often."""
        is_alone = True
        missing = set(models)
        for other in self._fleet:
            if other is endpoint or not other.is_pickable or not _may_replace(other, endpoint):
                continue
            if failures is not None and 2 * self._failures_of(other.address, now) > failures:
                continue
            is_alone = False
            missing.difference_update(other.models_by_name)
        return not is_alone and not missing

    def _failures_of(self, address: Address, now: float) -> int:
        evidence = self._evidence.get(address)
        if evidence is None or not evidence.failures:
            return 0
        ejection = self._ejections.get(address)
        since = 0.0 if ejection is None else ejection.since
        return len(evidence.counted(self._requests, since, now))


def _may_replace(one: Endpoint, other: Endpoint) -> bool:
    """Whether they serve the same requests, but for their models: those of one tier and pool."""
    return one.spec.tier == other.spec.tier and one.spec.pool == other.spec.pool


def _kind_of(lease: Lease, request: Request) -> RequestKind:
    return RequestKind(request.traits, lease.model)


@lru_cache(maxsize=64)
def _issue(failures: int, fault: Fault) -> Issue:
    many = "1 request" if failures == 1 else f"{failures} requests in a row"
    return Issue(
        code="ejected",
        message=f"{many} {_WORDS[fault]} while it looked healthy; it gets one trial request at a "
        "time until one succeeds",
        remedy="read its log and send it a request without Coxswain; restart it if it does not "
        "recover. `coxswain endpoints disable` also stops trial requests",
    )
