"""Decides from the requests that ended at one endpoint whether the endpoint or a request fails.

A failure counts against the endpoint unless something else explains it:
  1. A response clears the failures of its kind of requests that were sent before it. The headers
     of a success clear those without headers; a complete response clears broken ones too.
  2. A kind is to blame instead of the endpoint if another kind works here: one of its requests
     that was sent after the kind's first failure got a response. From then on the kind does not
     count until it works. It does not count either while a request of another kind that was sent
     after its first failure runs much longer than its failures took: they are immediate. If
     another kind worked within `PROOF_S` or is running, and has not failed since, there may have
     been no time to see it work: then a kind counts only from its `KNOWN_DOUBTS`th failure on,
     and from its `NEW_DOUBTS`th if it never worked here. There is no doubt if another endpoint has
     answered one of the kinds that fail here since they do, and does not fail it.
  3. The same request sent again counts once, until it succeeds somewhere; a request that fails at
     several endpoints and succeeds at none does not count (see `FailedRequests`).
What was sent earlier proves less than what was sent later, so all times are those of sending.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from extproc.core.address import Address

PROOF_S: Final = 60.0
KNOWN_DOUBTS: Final = 6
NEW_DOUBTS: Final = 10
ENDURES_FACTOR: Final = 3.0
"""A request that runs this many times longer than failures took has not failed like them."""
MIN_ENDURES_S: Final = 0.25
"""It runs at least this long, because the times of immediate failures vary."""
MAX_FAILURES: Final = 16
"""Failures that are remembered for one endpoint; the oldest is dropped."""
MAX_KINDS: Final = 16
"""Kinds for which the last success and the first failure are remembered; the oldest is
dropped."""
MAX_REQUESTS: Final = 1024
"""Failed requests that are recognised; the one with the oldest failure is dropped."""


class Fault(Enum):
    """How a request failed; the value is the metric's label."""

    SERVER_ERROR = "5xx"
    RESET = "reset"  # the connection ended before any response headers
    TIMEOUT = "timeout"  # Envoy gave up the wait for the server
    BROKEN_ANSWER = "broken-answer"  # the connection ended in the middle of the response
    UNAVAILABLE = "unavailable"  # no connection, or 503, although it looked healthy


LOST_CONNECTION: Final = frozenset({Fault.RESET, Fault.BROKEN_ANSWER})
"""With these the server may have died."""


class RequestKind(NamedTuple):
    """The attributes by which requests are likely to fail in the same way."""

    traits: str
    model: str | None


CONNECTION: Final = RequestKind("connection", None)
"""The kind of failures that happen before any request is read."""


class Failure(NamedTuple):
    """One failed request. `fingerprint` identifies equal requests, 0 if unknown."""

    kind: RequestKind
    fault: Fault
    fingerprint: int
    sent_at: float
    took_s: float


class Running(NamedTuple):
    """A request that its endpoint has whole and works on."""

    kind: RequestKind
    sent_at: float


class FailedRequests:
    """Requests that failed, by fingerprint: where, and whether they succeeded anywhere since.

    Bounded by `MAX_REQUESTS`. O(1) a call.
    """

    def __init__(self) -> None:
        self._failed_at: OrderedDict[int, set[Address]] = OrderedDict()
        self._good: set[int] = set()

    def failed(self, fingerprint: int, address: Address) -> None:
        """A request failed there. An unknown fingerprint (0) is ignored."""
        if not fingerprint:
            return
        self._failed_at.setdefault(fingerprint, set()).add(address)
        self._failed_at.move_to_end(fingerprint)
        if len(self._failed_at) > MAX_REQUESTS:
            dropped, _ = self._failed_at.popitem(last=False)
            self._good.discard(dropped)

    def succeeded(self, fingerprint: int) -> None:
        """A request succeeded somewhere."""
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
    """The evidence about one endpoint. Synchronous; O(1) for a success without failures."""

    __slots__ = ("_answered_at", "_blamed", "_failing_since", "_worked_at", "failures")

    def __init__(self) -> None:
        self.failures: deque[Failure] = deque(maxlen=MAX_FAILURES)
        self._worked_at: dict[RequestKind, float] = {}
        self._answered_at: dict[RequestKind, float] = {}
        """By kind, when the headers of its last success came."""
        self._failing_since: dict[RequestKind, float] = {}
        """By kind, when its first failed request since its last success was sent."""
        self._blamed: set[RequestKind] = set()
        """Those of the kinds that are to blame themselves."""

    def responded(self, kind: RequestKind, sent_at: float, now: float) -> None:
        """The headers of a success came for a request that was sent at `sent_at`."""
        self._answered_at[kind] = now
        _bound(self._answered_at)
        if sent_at > self._worked_at.get(kind, -1.0):
            self._worked_at[kind] = sent_at
            _bound(self._worked_at)
        if self._failing_since:
            self._clear(kind, sent_at, is_whole=False)
            for other, first_at in self._failing_since.items():
                if first_at <= sent_at and other not in (kind, CONNECTION):
                    self._blamed.add(other)

    def works(self, kind: RequestKind, since: float) -> bool:
        """Whether requests of this kind were answered here since then, and do not fail."""
        is_answered = self._answered_at.get(kind, -1.0) >= since
        return is_answered and kind not in self._failing_since

    def served(self, kind: RequestKind, sent_at: float) -> None:
        """A complete response came."""
        if self._failing_since:
            self._clear(kind, sent_at, is_whole=True)

    def failed(self, failure: Failure) -> None:
        """A request failed."""
        self.failures.append(failure)
        self._failing_since.setdefault(failure.kind, failure.sent_at)
        _bound(self._failing_since)
        if len(self._blamed) > MAX_KINDS:
            self._blamed &= self._failing_since.keys()

    def counted(
        self,
        requests: FailedRequests,
        since: float,
        now: float,
        running: Sequence[Running] = (),
        works_elsewhere: Callable[[RequestKind, float], bool] = lambda *_: False,
    ) -> list[Failure]:
        """The failures of requests sent at `since` or later that nothing else explains, also not
        the requests that are `running` here. `works_elsewhere` says whether another endpoint has
        answered this kind since that time. O(failures x kinds + kinds x running)."""
        recent = [failure for failure in self.failures if failure.sent_at >= since]
        by_kind: dict[RequestKind, list[Failure]] = {}
        for failure in recent:
            by_kind.setdefault(failure.kind, []).append(failure)
        is_alone = any(works_elsewhere(kind, recent[0].sent_at) for kind in by_kind)
        excused = {
            kind
            for kind, failures in by_kind.items()
            if self._explains(kind, failures, running, now, is_alone=is_alone)
        }
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
        """Forget the failures that a success of a request sent at `sent_at` clears."""
        remaining: dict[RequestKind, float] = {}
        failures = list(self.failures)
        self.failures.clear()
        for failure in failures:
            if (
                failure.sent_at > sent_at
                or failure.kind not in (kind, CONNECTION)
                or (failure.fault is Fault.BROKEN_ANSWER and not is_whole)
            ):
                self.failures.append(failure)
                remaining.setdefault(failure.kind, failure.sent_at)
        for one in (kind, CONNECTION):
            self._failing_since.pop(one, None)
            self._blamed.discard(one)
            if one in remaining:
                self._failing_since[one] = remaining[one]

    def _explains(
        self,
        kind: RequestKind,
        failures: list[Failure],
        running: Sequence[Running],
        now: float,
        *,
        is_alone: bool,
    ) -> bool:
        """Whether the kind explains its failures: another kind works here. With `is_alone` no
        other endpoint fails them."""
        if kind in self._blamed:
            return True
        if kind == CONNECTION:
            return False
        first_at = self._failing_since.get(kind, failures[0].sent_at)
        longest_s = max(failure.took_s for failure in failures)
        began_by = now - max(MIN_ENDURES_S, ENDURES_FACTOR * longest_s)
        if any(other != kind and first_at <= sent_at < began_by for other, sent_at in running):
            return True
        if is_alone:
            return False
        if len(failures) >= (KNOWN_DOUBTS if kind in self._worked_at else NEW_DOUBTS):
            return False
        hopeful = {
            other for other, worked_at in self._worked_at.items() if worked_at >= now - PROOF_S
        }
        hopeful.update(other for other, _ in running)
        return any(other != kind and other not in self._failing_since for other in hopeful)


def _bound(times: dict[RequestKind, float]) -> None:
    if len(times) > MAX_KINDS:
        del times[min(times, key=times.__getitem__)]
