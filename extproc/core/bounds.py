"""Bounds of an objective, a model, a path or a pool: requests that run at once, and queued ones.

A request has a place in each bound that it is under while it runs, and while slots are reserved for
it. Where all places are taken it is queued, although slots may be free; where the bound's queue is
full, too, it is rejected. Both counts can be derived again from the leases and the tickets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from extproc.core.constraints import NO_POOL


class BoundKind(Enum):
    """What requests under a bound have in common."""

    OBJECTIVE = "objective"
    MODEL = "model"
    PATH = "path"
    POOL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLimits:
    """`running` requests at once and `queued` ones, None without a limit. `queue_timeout_s` is the
    longest time in the queue, None for that of the queue. With `is_last_come`, the newest queued
    request of a flow is next instead of the oldest."""

    running: int | None = None
    queued: int | None = None
    queue_timeout_s: float | None = None
    is_last_come: bool = False


NO_LIMITS: Final = BoundLimits()


class Bound:
    """One bound and what is under it now. Belongs to a `Bounds`."""

    __slots__ = ("_opened", "kind", "limits", "name", "queued", "reserved", "running")

    def __init__(
        self, kind: BoundKind, name: str, limits: BoundLimits, opened: "list[Bound]"
    ) -> None:
        self.kind = kind
        self.name = name
        self.limits = limits
        self.running = 0
        """Leases, draining ones too."""
        self.reserved = 0
        """Queued requests with a place, as slots are reserved for them."""
        self.queued = 0
        self._opened = opened

    @property
    def is_full(self) -> bool:
        """Whether no further request may run."""
        most = self.limits.running
        return most is not None and self.running + self.reserved >= most

    @property
    def is_queue_full(self) -> bool:
        """Whether no further request may be queued."""
        return self.limits.queued is not None and self.queued >= self.limits.queued

    @property
    def description(self) -> str:
        """What is full, for the client."""
        what = f"of the {self.kind.value} {self.name}"
        is_one = self.running == 1
        text = f"1 request {what} runs" if is_one else f"{self.running} requests {what} run"
        if not self.queued:
            return text
        return f"{text} and {self.queued} {'is' if self.queued == 1 else 'are'} queued"

    def request_began(self) -> None:
        """A request under it got a lease."""
        self.running += 1

    def request_ended(self) -> None:
        """The lease of one is closed."""
        self.running -= 1
        self._open()

    def reserve(self) -> None:
        """Slots are reserved for a queued request."""
        self.reserved += 1

    def unreserve(self) -> None:
        """That reservation is over, with a lease or without."""
        self.reserved -= 1
        self._open()

    def _open(self) -> None:
        if self.limits.running is not None and self.queued > self.reserved:
            self._opened.append(self)


BoundsOfRequest = tuple[Bound, ...]
"""The bounds that a request is under; most are under none."""
Key = tuple[BoundKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOptions:
    """The limits by kind and name. `paths` gives each path in all its spellings the name of its
    bound."""

    limits: Mapping[Key, BoundLimits] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)


class Bounds:
    """All bounds. A lookup is O(bounds of models)."""

    def __init__(self, options: BoundOptions) -> None:
        self.opened: list[Bound] = []
        """Those that may have a place again for queued requests; the dispatcher empties it."""
        self._bounds: dict[Key, Bound] = {}
        self._former: list[Bound] = []
        """Without limits by now, and still with requests."""
        self._paths: Mapping[str, str] = {}
        self._models: tuple[str, ...] = ()
        self.is_empty = True
        self.renew(options)

    def __iter__(self) -> Iterator[Bound]:
        return iter(self._bounds.values())

    def renew(self, options: BoundOptions) -> None:
        """Other limits, from now on. Requests stay under the bounds that they were under when they
        arrived, and those of a bound that is removed are not limited any more."""
        before = self._bounds
        self._bounds = {}
        for key, limits in options.limits.items():
            bound = before.pop(key, None)
            if bound is None:
                bound = Bound(*key, limits, self.opened)
            bound.limits = limits
            self._bounds[key] = bound
        for bound in before.values():
            bound.limits = NO_LIMITS
        self._former = [b for b in (*self._former, *before.values()) if b.running or b.queued]
        self._paths = options.paths
        self._models = tuple(name for kind, name in self._bounds if kind is BoundKind.MODEL)
        self.is_empty = not self._bounds

    def of(
        self,
        objective: str,
        models: Iterable[str | None],
        path: str,
        canonical: Callable[[str], str],
        pool: str = NO_POOL,
    ) -> BoundsOfRequest:
        """The bounds of a request of that objective, path and pool, whose model has these names;
        equal ones of several requests are in the same order. `canonical` gives all names of one
        model the same name."""
        found: dict[Bound, None] = {}
        if objective:
            self._add(found, BoundKind.OBJECTIVE, objective)
        if self._models:
            named = {name for name in models if name is not None}
            wanted = {canonical(name) for name in named} | named
            for name in self._models:
                if name in wanted or canonical(name) in wanted:
                    self._add(found, BoundKind.MODEL, name)
        if path in self._paths:
            self._add(found, BoundKind.PATH, self._paths[path])
        if pool:
            self._add(found, BoundKind.POOL, pool)
        return tuple(found)

    def _add(self, found: dict[Bound, None], kind: BoundKind, name: str) -> None:
        bound = self._bounds.get((kind, name))
        if bound is not None:
            found[bound] = None

    # Derived state

    def faults(
        self,
        leased: Iterable[BoundsOfRequest],
        queued: Iterable[BoundsOfRequest],
        reserved: Iterable[BoundsOfRequest],
    ) -> list[str]:
        """Differences between the counts and these requests, for the log. O(requests)."""
        counts = _counted(leased, queued, reserved)
        return [
            f"{bound.kind.value} {bound.name}: {known} requests run, wait and have reservations, "
            f"and {counts.get(bound, (0, 0, 0))} do"
            for bound in {*self._bounds.values(), *self._former, *counts}
            if (known := (bound.running, bound.queued, bound.reserved))
            != counts.get(bound, (0, 0, 0))
        ]

    def recount(
        self,
        leased: Iterable[BoundsOfRequest],
        queued: Iterable[BoundsOfRequest],
        reserved: Iterable[BoundsOfRequest],
    ) -> None:
        """Derive all counts again from these requests. O(requests)."""
        counts = _counted(leased, queued, reserved)
        for bound in {*self._bounds.values(), *self._former, *counts}:
            bound.running, bound.queued, bound.reserved = counts.get(bound, (0, 0, 0))
        self.opened.clear()


def _counted(*parts: Iterable[BoundsOfRequest]) -> dict[Bound, tuple[int, int, int]]:
    counts: dict[Bound, list[int]] = {}
    for number, requests in enumerate(parts):
        for bounds in requests:
            for bound in bounds:
                counts.setdefault(bound, [0, 0, 0])[number] += 1
    return {bound: (one[0], one[1], one[2]) for bound, one in counts.items()}


def is_held_back(bounds: BoundsOfRequest) -> bool:
    """Whether a request under these may not run now, even if slots are free."""
    for bound in bounds:  # noqa: SIM110 - mostly empty, and each pick asks: no generator
        if bound.is_full:
            return True
    return False


def lacks_place(bounds: BoundsOfRequest) -> bool:
    """Whether a request under these may not be queued, as the queue of one of them is full."""
    for bound in bounds:  # noqa: SIM110 - as in `is_held_back`
        if bound.is_queue_full:
            return True
    return False
