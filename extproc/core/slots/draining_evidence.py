"""Decides from scrapes whether the task of a client that left has ended, and which are foreign.

The number of busy slots does not show it. With a draining lease A and an open lease B, one busy
slot is A's task while B's request is in transit; or B's task; or A's again if B's has ended and its
release is in transit to us. The numbers of the tasks show it. Scrapes are counted, and each task is
identified by the first scrape that showed it:

  earliest(lease)  the first scrape that was applied after the lease was opened: a task that an
                   earlier one showed does not belong to the lease
  latest(lease)    the first scrape that must show its task, unless the task has ended: a task that
                   a later one shows first does not belong to the lease. Known once its request has
                   certainly arrived

A draining lease is over when its request has certainly arrived and no busy task can belong to it:
each was first shown outside of [earliest, latest], or belongs to a lease that certainly ran at that
scrape. A lease certainly ran if its request had arrived and it was not released within `RELEASE_S`
after the response; so a scrape without a clear result is evaluated again `RELEASE_S` later.

A request is in transit for at most `ARRIVAL_S` after its body was complete or its client left, and
at most until its response begins. It has certainly arrived when
  - the previous scrape began after that. Not this scrape, unless it shows no task: while
    llama-server works on a batch, it holds new tasks, even if their headers are out, and answers a
    scrape that arrives then before it starts them
  - or all traffic is ours, and there are as many new tasks as requests that may be new.

A busy slot without a task number (older builds, a router that was not scraped in full) can belong
to any request.
"""

from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from extproc.core.observation import Observation
from extproc.core.slots.lease import Lease

ARRIVAL_S = 0.25
"""A request whose body is complete reaches its server's queue within this time."""
RELEASE_S = 0.1
"""The end of a response reaches us within this time after its task ended."""
NOT_YET = 1 << 62
"""The latest scrape of a request that may still be in transit."""

Span = tuple[int, int]
"""The earliest and the latest scrape that may be the first to show a lease's task."""
Owner = tuple[int, int]
"""The earliest scrape that may show a lease's tasks, and the number of its slots."""


class _Scrape(NamedTuple):
    number: int
    began_at: float
    answered_at: float
    first_shown: list[int]
    """For each busy task with a number, the scrape that showed it first; in ascending order."""
    unnumbered: int


class DrainingEvidence:
    """The evidence for one endpoint or one model pool. O(leases log leases) a scrape, and the same
    for each draining lease."""

    __slots__ = ("_earliest", "_last", "_latest", "_shown", "_tasks", "_undecided")

    def __init__(self) -> None:
        self._earliest: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self._tasks: dict[tuple[str, int], int] = {}
        """For each busy task, by model and number, the scrape that showed it first."""
        self._last = _Scrape(0, float("-inf"), float("-inf"), [], 0)
        self._shown: list[int] = []
        """The same as its `first_shown`, of the last scrape even if that was ignored."""
        self._undecided: _Scrape | None = None
        """A scrape that must be evaluated again."""

    def opened(self, lease: Lease, *, is_running: bool = False) -> None:
        """A lease begins; `is_running` if its request has run here for an unknown time."""
        self._earliest[lease.id] = 0 if is_running else self._last.number + 1

    def closed(self, lease: Lease) -> int:
        """The lease is over, for any reason; returns the first scrape that may show its task."""
        self._latest.pop(lease.id, None)
        return self._earliest.pop(lease.id)

    def restarted(self) -> None:
        """A new process responds: it numbers its tasks from the start, and earlier scrapes say
        nothing about it."""
        self._tasks.clear()
        self._shown.clear()
        self._undecided = None

    def evaluate(
        self,
        observation: Observation,
        busy_slots: int,
        leases: Collection[Lease],
        *,
        is_quiet: bool,
    ) -> list[Lease]:
        """Apply the next scrape; returns the draining leases that it proves over.

        `is_quiet`: no busy slot can be foreign or belong to a lease that was closed. A scrape that
        began before the previous one was answered is ignored: it may have seen less.
        """
        before, began_at = self._last, observation.began_at
        number = before.number + 1
        tasks = {
            task: self._tasks.get(task, number)
            for task in [(one.model, one.task_id) for one in observation.slot_readings]
        }
        first_shown = self._shown = sorted(tasks.values())
        if began_at < before.answered_at:
            return []
        unnumbered = max(0, busy_slots - len(tasks))
        scrape = _Scrape(number, began_at, observation.answered_at, first_shown, unnumbered)
        here = [lease for lease in leases if lease.opened_at <= scrape.answered_at]
        new = [lease for lease in here if lease.id not in self._latest]
        is_full = is_quiet and (
            _slots(here) == busy_slots or _slots(new) == scrape.first_shown.count(number)
        )
        shown_since = before.began_at if busy_slots else began_at
        for lease in new:
            if is_full or arrived_by(lease) < shown_since:
                self._latest[lease.id] = number
        self._tasks, self._last = tasks, scrape
        draining = _draining_at(scrape, here)
        over = self._over(scrape, draining, [])
        if self._undecided is None and len(over) < len(draining):
            self._undecided = scrape
        return over

    def ownerless_slots(self, leases: Collection[Lease], closed: Iterable[Owner]) -> int:
        """The least number of busy slots, in the last scrape, that belong to no lease.

        A lease owns no task that a scrape before it showed. So if more tasks than leases are from
        before some scrape, the rest are foreign (Hall's condition for nested sets). `closed` are
        leases that ended after the scrape began.
        """
        shown = self._shown
        if not shown or shown[0] > self._last.number:
            return 0  # any lease may own a new task
        owners = [(self._earliest[lease.id], lease.weight_slots) for lease in leases]
        owners += closed
        owners.sort()
        ownerless = owned = at = 0
        for count, first_shown in enumerate(shown, 1):
            while at < len(owners) and owners[at][0] <= first_shown:
                owned += owners[at][1]
                at += 1
            ownerless = max(ownerless, count - owned)
        return ownerless

    @property
    def due_at(self) -> float | None:
        """When `reevaluate` must be called, or None."""
        return None if self._undecided is None else self._undecided.answered_at + RELEASE_S

    def reevaluate(self, leases: Collection[Lease], now: float) -> list[Lease]:
        """The draining leases that a scrape proves over, after `RELEASE_S` has passed."""
        scrape, due_at = self._undecided, self.due_at
        if scrape is None or due_at is None or now < due_at:
            return []
        self._undecided = None
        certain = [
            self._span(lease)
            for lease in leases
            if lease.left_at is None and self._latest.get(lease.id, NOT_YET) <= scrape.number
        ]
        # If no task can belong to a lease, it has ended: its release is only late.
        certain = [span for span in certain if _can_all_run([span], scrape)]
        return self._over(scrape, _draining_at(scrape, leases), certain)

    def _over(self, scrape: _Scrape, draining: list[Lease], certain: list[Span]) -> list[Lease]:
        """Leases that cannot have run at that scrape, given the certain ones and each other."""
        running = certain if _can_all_run(certain, scrape) else []
        over: list[Lease] = []
        for lease in sorted(draining, key=_left_at, reverse=True):
            span = self._span(lease)
            if span[1] > scrape.number:
                continue  # its request may arrive later
            if _can_all_run([*running, span], scrape):
                running = [*running, span]
            else:
                over.append(lease)
        over.reverse()
        return over

    def _span(self, lease: Lease) -> Span:
        return self._earliest[lease.id], self._latest.get(lease.id, NOT_YET)


def _can_all_run(spans: list[Span], scrape: _Scrape) -> bool:
    """Whether each lease can have a busy task of its own: a matching of intervals with points,
    which takes for each point the interval that ends first (Glover 1967)."""
    to_come = sorted(spans, reverse=True)
    open_until: list[int] = []
    without = 0
    for first_shown in scrape.first_shown:
        while to_come and to_come[-1][0] <= first_shown:
            heappush(open_until, to_come.pop()[1])
        while open_until and open_until[0] < first_shown:
            heappop(open_until)
            without += 1
        if open_until:
            heappop(open_until)
    return without + len(open_until) + len(to_come) <= scrape.unnumbered


def _draining_at(scrape: _Scrape, leases: Collection[Lease]) -> list[Lease]:
    """The leases whose client had left before the scrape began."""
    return [lease for lease in leases if _left_at(lease) < scrape.began_at]


def arrived_by(lease: Lease) -> float:
    """The time until which its request may be in transit to the server's queue."""
    bound = _left_at(lease) if lease.is_uploading else lease.opened_at
    return min(_began_by(lease), bound + ARRIVAL_S)


def _began_by(lease: Lease) -> float:
    return float("inf") if lease.answered_at is None else lease.answered_at


def _left_at(lease: Lease) -> float:
    return float("inf") if lease.left_at is None else lease.left_at


def _slots(leases: Collection[Lease]) -> int:
    return sum(lease.weight_slots for lease in leases)
