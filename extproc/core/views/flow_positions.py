"""The order in which the tickets of one flow are served, sorted once for many forecasts."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate, islice

from extproc.core.queue.flow_order import QueueOrder
from extproc.core.queue.ticket import Ticket

MAX_COUNTED = 4096
"""Positions in one flow are counted up to this number; all later ones get the same."""

Key = tuple[bool, int, int]
"""Whether others may still pass it, its class, its number; the smallest is served first."""


class FlowPositions:
    """The first tickets of a flow. O(n log n) to make, O(log n) a call."""

    __slots__ = ("_ids", "_keys", "_now", "_order", "_work_s")

    def __init__(
        self, tickets: Mapping[int, Ticket], order: QueueOrder, now: float, usual_slot_s: float
    ) -> None:
        """`usual_slot_s` stands for sizes that are not known."""
        self._order = order
        self._now = now
        self._ids: list[int] = []
        self._keys: list[Key] = []
        self._work_s: list[float] = []
        if not order.has_classes:
            self._ids = sorted(islice(tickets, MAX_COUNTED))
            return
        counted = sorted(
            (self._key(ticket), ticket.expected_slot_s or usual_slot_s)
            for ticket in islice(tickets.values(), MAX_COUNTED)
        )
        self._keys = [key for key, _ in counted]
        self._work_s = list(accumulate((slot_s for _, slot_s in counted), initial=0.0))

    def ahead_of(self, ticket: Ticket) -> int:
        """How many tickets of its flow are served before a ticket, which may be a new one."""
        if self._order.is_last_come:
            return len(self._ids) - bisect_right(self._ids, ticket.id)
        if not self._order.has_classes:
            return bisect_left(self._ids, ticket.id)
        return bisect_left(self._keys, self._key(ticket))

    def work_ahead_s(self, ticket: Ticket) -> float:
        """The slot-seconds that those are expected to take; 0 unless the order is by size."""
        return self._work_s[self.ahead_of(ticket)] if self._order.is_by_size else 0.0

    def _key(self, ticket: Ticket) -> Key:
        may_be_passed = self._now < self._order.overtaken_until(ticket.entered_at)
        return (may_be_passed, ticket.order_class if may_be_passed else 0, ticket.id)


def arrived_before(ticket: Ticket, tickets: Iterable[int]) -> int:
    """How many of these ticket numbers are lower. O(n)."""
    return sum(id_ < ticket.id for id_ in islice(tickets, MAX_COUNTED))
