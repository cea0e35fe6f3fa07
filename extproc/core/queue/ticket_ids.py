"""The ids of tickets, which are their places: a lower one arrived earlier."""

from typing import Final

PER_SECOND: Final = 1_000_000


class TicketIds:
    """An id is the microsecond of the arrival, or the next one if that is used.

    So a request that is heard of late, because it reached a process that stood still, finds its
    place between others. Times are seconds of one monotonic clock. Another process of the machine
    gives ids that go on with these.
    """

    __slots__ = ("_shift", "last")

    def __init__(self) -> None:
        self.last = 0
        """The highest that is used."""
        self._shift = 0
        """What an id is more than its microsecond."""

    def next(self, now: float) -> int:
        """The id of a request that arrives now: the highest."""
        self.last = max(self.last + 1, self.at(now))
        return self.last

    def at(self, arrived_at: float) -> int:
        """The id of a request that arrived then. Another may have it."""
        return self._shift + int(arrived_at * PER_SECOND)

    def use(self, id_: int, arrived_at: float) -> None:
        """Another process has given this id to a request that arrived then: ids of later ones are
        above it."""
        self.last = max(self.last, id_)
        self._shift = max(self._shift, id_ - int(arrived_at * PER_SECOND))
