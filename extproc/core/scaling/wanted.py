"""How many servers a model needs.

    offered = arrivals per second * service time       busy slots on average (Little's law)
    load    = the fewest slots with C(slots, offered) * service time / (slots - offered) <= target
    backlog = queued - arrivals per second * target    more than waits anyway (Little's law again)
    queue   = offered + backlog * service time / clear  slots that work it off within `CLEAR_S`,
              at most busy + queued                     as no more can be used at once
    servers = ceil(max(load, queue, 1) / slots of a server)

`C` is the probability that an arrival waits in a queue with that many servers (Erlang 1917, for
Poisson arrivals and exponential service times; see Gross and Harris, "Fundamentals of Queueing
Theory", section 2.3). It follows from Erlang's B by `B(c) = a B(c-1) / (c + a B(c-1))` and
`C = B / (1 - a/c (1 - B))`. Above `MANY_SLOTS` the square-root rule of Halfin and Whitt (1981),
`offered + sqrt(offered)`, gives about the same without the recursion.

What is not known is not guessed: until a request has ended, and a server has reported its slots,
one server is wanted, or as many as there are.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf, sqrt
from typing import Final, NamedTuple

MANY_SLOTS: Final = 1000.0
LEAST_WAIT_S: Final = 0.01
CLEAR_S: Final = 30.0
"""The time in which a backlog is worked off. A server takes about as long to start: more servers
would come when the backlog is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBounds:
    """How many servers a model may have. `slots` are those of one server, None until it reports
    them."""

    min_servers: int = 0
    max_servers: int = 100
    slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """`target_wait_s` is the mean time in the queue that is aimed at. Without a request for
    `idle_s` no server is wanted. Fewer servers are wanted when fewer would have done for
    `down_after_s`. `models` are bounds by model; `others` are those of all other models."""

    target_wait_s: float = 5.0
    idle_s: float = 300.0
    down_after_s: float = 300.0
    models: Mapping[str, ServerBounds] = field(default_factory=dict)
    others: ServerBounds = ServerBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraffic:
    """The requests for one model. `queued_slots` and `busy_slots` are slots that are waited for and
    in use; `service_s` are slot-seconds of a request and `slots` those of a server, both None while
    they are not known. `servers` serve it now. `unasked_s` is the time without a request."""

    queued_slots: int = 0
    busy_slots: int = 0
    arrivals_per_s: float = 0.0
    service_s: float | None = None
    slots: float | None = None
    servers: int = 0
    unasked_s: float = inf


class Cause(Enum):
    """What decides the number of servers."""

    IDLE = "idle"
    UNKNOWN = "unknown"
    LOAD = "load"
    QUEUE = "queue"
    BOUND = "bound"
    HELD = "held"


MEANINGS: Final = {
    Cause.IDLE: "nobody has asked for it for scale.idle_s",
    Cause.UNKNOWN: "the slots of a server or the time of a request are not known yet",
    Cause.LOAD: "requests arrive at this rate",
    Cause.QUEUE: "requests are queued",
    Cause.BOUND: "min_servers or max_servers in scale.models",
    Cause.HELD: "fewer would do, but not yet for scale.down_after_s",
}
"""What decides, for operators."""


class Recommendation(NamedTuple):
    """A number of servers, and what decided it."""

    servers: int
    cause: Cause


def recommend(
    traffic: ModelTraffic, bounds: ServerBounds, options: ScaleOptions, target_wait_s: float
) -> Recommendation:
    """The servers that a model needs at this moment; see the module's formula."""
    found = _unbounded(traffic, options, max(LEAST_WAIT_S, target_wait_s))
    servers = max(bounds.min_servers, min(bounds.max_servers, found.servers))
    return found if servers == found.servers else Recommendation(servers, Cause.BOUND)


def _unbounded(
    traffic: ModelTraffic, options: ScaleOptions, target_wait_s: float
) -> Recommendation:
    is_asked_for = traffic.queued_slots > 0 or traffic.busy_slots > 0
    if not is_asked_for and traffic.unasked_s >= options.idle_s:
        return Recommendation(0, Cause.IDLE)
    if traffic.service_s is None or not traffic.slots:
        return Recommendation(max(1, traffic.servers), Cause.UNKNOWN)
    offered = traffic.arrivals_per_s * traffic.service_s
    load = slots_for_wait(offered, traffic.service_s, target_wait_s)
    backlog = max(0.0, traffic.queued_slots - traffic.arrivals_per_s * target_wait_s)
    queue = min(
        float(traffic.busy_slots + traffic.queued_slots),
        offered + backlog * traffic.service_s / max(CLEAR_S, target_wait_s),
    )
    cause = Cause.QUEUE if queue > load else Cause.LOAD
    return Recommendation(ceil(max(load, queue, 1.0) / traffic.slots - 1e-9), cause)


def slots_for_wait(offered: float, service_s: float, target_wait_s: float) -> int:
    """The fewest slots with which requests wait for `target_wait_s` on average, for an offered load
    in slots. O(offered), at most `MANY_SLOTS`."""
    if offered <= 0.0:
        return 0
    if offered > MANY_SLOTS:
        return ceil(offered + sqrt(offered))
    slots, blocked = 0, 1.0
    while True:
        slots += 1
        blocked = offered * blocked / (slots + offered * blocked)
        if slots > offered:
            waits = blocked / (1.0 - offered / slots * (1.0 - blocked))
            if waits * service_s <= target_wait_s * (slots - offered):
                return slots


class Damping:
    """Keeps the number of a model's servers from flapping: up at once, down after a while.

    The result is the highest number that was recommended in the last `down_after_s`, as in the
    stabilization window of Kubernetes' HorizontalPodAutoscaler. So a number is never below one that
    was needed less than `down_after_s` ago. None is wanted only after `idle_s` without a request,
    which is long enough by itself: 0 counts at once. O(1) a call, amortised; holds at most one
    entry for each number of servers.
    """

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        """When each number was recommended last: older first, and higher first."""

    def settle(self, servers: int, down_after_s: float, now: float) -> int:
        """The number of servers that counts, after one more recommendation."""
        recent = self._recent
        if servers == 0:
            recent.clear()
            return 0
        while recent and recent[-1][1] <= servers:
            recent.pop()
        recent.append((now, servers))
        while recent[0][0] < now - down_after_s:
            recent.popleft()
        return recent[0][1]
