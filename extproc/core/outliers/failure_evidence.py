"""What the requests that ended at one endpoint say about it: does the endpoint fail, or a request?

A failure counts against the endpoint unless something else explains it:
  1. A response clears the failures of its kind of requests that were sent before it. The headers
     of a success clear those that got no headers; a whole answer clears broken answers too.
  2. A kind is to blame, and not the endpoint, when another kind works here: one of its requests
     that was sent after the kind's first failure got a response. From then on it counts no more,
     until it works. And a kind that never worked here counts from its `DOUBTS`th failure on where
     another one worked within `PROOF_S` and has not failed since: there may have been no time to
     see it work again.
  3. The same request sent again counts once, until it succeeds somewhere; one that fails at
     several endpoints and succeeds at none does not count (see `FailedRequests`).
What was sent earlier says less than what was sent later, so all times are those of sending.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from extproc.core.address import Address

PROOF_S: Final = 60.0
DOUBTS: Final = 10
MAX_FAILURES: Final = 16
"""Failures that are kept of one endpoint; the oldest one is dropped."""
MAX_KINDS: Final = 16
"""Kinds of which is kept when they last worked and since when they fail; the one of which that
was longest ago is dropped."""
MAX_REQUESTS: Final = 1024
"""Failed requests that are recognised; the one that failed longest ago is dropped."""


class Fault(Enum):
    """How a request failed; the value is the metric's label."""

    SERVER_ERROR = "5xx"
    RESET = "reset"  # the connection ended before any response headers
    TIMEOUT = "timeout"  # Envoy gave up the wait for the server
    BROKEN_ANSWER = "broken-answer"  # the connection ended in the middle of the answer
    UNAVAILABLE = "unavailable"  # no connection, or 503, although it looked healthy


LOST_CONNECTION: Final = frozenset({Fault.RESET, Fault.BROKEN_ANSWER})
"""Of these the server may have died."""


class RequestKind(NamedTuple):
    """What makes two requests alike enough to fail alike."""

    traits: str
    model: str | None


CONNECTION: Final = RequestKind("connection", None)
"""The kind of failures that happen before any request is read."""


class Failure(NamedTuple):
    """One failed request. `fingerprint` tells equal requests apart from others, 0 if unknown."""

    kind: RequestKind
    fault: Fault
    fingerprint: int
    sent_at: float
    took_s: float


class FailedRequests:
    """Requests that failed somewhere, by fingerprint: where, and whether they succeeded anywhere.

    Bounded by `MAX_REQUESTS`. O(1) a call.
    """

    def __init__(self) -> None:
        self._failed_at: OrderedDict[int, set[Address]] = OrderedDict()
        self._good: set[int] = set()

    def failed(self, fingerprint: int, address: Address) -> None:
        """It failed there. An unknown fingerprint (0) is ignored."""
        if not fingerprint:
            return
        self._failed_at.setdefault(fingerprint, set()).add(address)
        self._failed_at.move_to_end(fingerprint)
        if len(self._failed_at) > MAX_REQUESTS:
            dropped, _ = self._failed_at.popitem(last=False)
            self._good.discard(dropped)

    def succeeded(self, fingerprint: int) -> None:
        """It was answered well somewhere."""
        if fingerprint in self._failed_at:
            self._good.add(fingerprint)

    def is_good(self, fingerprint: int) -> bool:
        """Whether it succeeded somewhere since it first failed."""
        return fingerprint in self._good

    def is_at_fault(self, fingerprint: int) -> bool:
        """Whether it failed at several endpoints and succeeded at none."""
        places = self._failed_at.get(fingerprint)
        return places is not None and len(places) > 1 and fingerprint not in self._good


class FailureEvidence:
    """The evidence about one endpoint. Synchronous; O(1) for a success where nothing failed."""

    __slots__ = ("_blamed", "_failing_since", "_worked_at", "failures")

    def __init__(self) -> None:
        self.failures: deque[Failure] = deque(maxlen=MAX_FAILURES)
        self._worked_at: dict[RequestKind, float] = {}
        self._failing_since: dict[RequestKind, float] = {}
        """When the first request of a kind was sent that failed since the kind last worked."""
        self._blamed: set[RequestKind] = set()
        """Of those, the kinds that are to blame themselves."""

    def responded(self, kind: RequestKind, sent_at: float) -> None:
        """The headers of a success came for a request that was sent at `sent_at`."""
        if sent_at > self._worked_at.get(kind, -1.0):
            self._worked_at[kind] = sent_at
            _bound(self._worked_at)
        if self._failing_since:
            self._clear(kind, sent_at, is_whole=False)
            for other, first_at in self._failing_since.items():
                if first_at <= sent_at and other not in (kind, CONNECTION):
                    self._blamed.add(other)

    def served(self, kind: RequestKind, sent_at: float) -> None:
        """A whole answer came."""
        if self._failing_since:
            self._clear(kind, sent_at, is_whole=True)

    def failed(self, failure: Failure) -> None:
        """A request failed."""
        self.failures.append(failure)
        self._failing_since.setdefault(failure.kind, failure.sent_at)
        _bound(self._failing_since)
        if len(self._blamed) > MAX_KINDS:
            self._blamed &= self._failing_since.keys()

    def counted(self, requests: FailedRequests, since: float, now: float) -> list[Failure]:
        """The failures of what was sent at `since` or later that nothing else explains.
        O(failures x kinds), both bounded."""
        recent = [failure for failure in self.failures if failure.sent_at >= since]
        by_kind: dict[RequestKind, int] = {}
        for failure in recent:
            by_kind[failure.kind] = by_kind.get(failure.kind, 0) + 1
        excused = {kind for kind, count in by_kind.items() if self._explains(kind, count, now)}
        seen: set[int] = set()
        counted: list[Failure] = []
        for failure in recent:
            fingerprint = failure.fingerprint
            if failure.kind in excused or requests.is_at_fault(fingerprint):
                continue
            if fingerprint and fingerprint in seen and not requests.is_good(fingerprint):
                continue
            seen.add(fingerprint)
            counted.append(failure)
        return counted

    def _clear(self, kind: RequestKind, sent_at: float, *, is_whole: bool) -> None:
        """Forget the failures that are answered by a success of what was sent then."""
        kept: dict[RequestKind, float] = {}
        failures = list(self.failures)
        self.failures.clear()
        for failure in failures:
            if (
                failure.sent_at > sent_at
                or failure.kind not in (kind, CONNECTION)
                or (failure.fault is Fault.BROKEN_ANSWER and not is_whole)
            ):
                self.failures.append(failure)
                kept.setdefault(failure.kind, failure.sent_at)
        for one in (kind, CONNECTION):
            self._failing_since.pop(one, None)
            self._blamed.discard(one)
            if one in kept:
                self._failing_since[one] = kept[one]

    def _explains(self, kind: RequestKind, count: int, now: float) -> bool:
        """Whether the kind explains that many failures of its own: another kind works here."""
        if kind in self._blamed:
            return True
        if kind == CONNECTION or kind in self._worked_at or count >= DOUBTS:
            return False
        return any(
            worked_at >= now - PROOF_S and other not in self._failing_since
            for other, worked_at in self._worked_at.items()
        )


def _bound(times: dict[RequestKind, float]) -> None:
    if len(times) > MAX_KINDS:
        del times[min(times, key=times.__getitem__)]
