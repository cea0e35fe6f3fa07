"""How many other requests ran at the same server meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One request at a server, in Unix seconds."""

    exchange_id: str
    endpoint: str
    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The other requests: how many there were, how many ran at once on average and at most. They
    are `all_known` unless some that ended meanwhile may be forgotten."""

    count: int
    mean: float
    most: int
    all_known: bool


def neighbours(own: Run, others: Iterable[Run], *, all_known: bool) -> Neighbours:
    """The requests that ran at the server of one while it did. O(n log n)."""
    changes: list[tuple[float, int]] = []
    overlap_s, count = 0.0, 0
    for other in others:
        if other.endpoint != own.endpoint or other.exchange_id == own.exchange_id:
            continue
        began_at = max(own.began_at, other.began_at)
        ended_at = min(own.ended_at, other.ended_at)
        if began_at < ended_at:
            count += 1
            overlap_s += ended_at - began_at
            changes += [(began_at, 1), (ended_at, -1)]
    most = running = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    length_s = own.ended_at - own.began_at
    mean = overlap_s / length_s if length_s > 0 else 0.0
    return Neighbours(count=count, mean=mean, most=most, all_known=all_known)
