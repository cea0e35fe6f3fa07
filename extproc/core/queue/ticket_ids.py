"""The ids of tickets, which are their places: a lower one arrived earlier."""

from typing import Final

PER_SECOND: Final = 1_000_000


class TicketIds:
    """An id is the microsecond of the arrival, or the next one if that is used.

    So a request that is heard of late, because it reached a process that stood still, finds its
    place between others. Times are seconds of one monotonic clock. Another process of the machine
    gives ids that go on with these; those of a leader on another machine are below a base.
    """

    __slots__ = ("_base", "_began_at", "_earlier_shift", "_shift", "last")

    def __init__(self) -> None:
        self.last = 0
        """The highest that is used."""
        self._shift = 0
        """What an id is more than its microsecond."""
        self._base = 0
        self._began_at = 0.0
        self._earlier_shift: int | None = None
        """The same for ids of the leader before, if any is known."""

    def begin(self, base: int, now: float) -> None:
        """From now on ids are above `base`, and those of leaders before this one are not."""
        self._base, self._began_at = base, now
        self.last = max(self.last, base)
        self._shift = max(self._shift, base - _us(now))

    def next(self, now: float) -> int:
        """The id of a request that arrives now: the highest."""
        self.last = max(self.last + 1, self._shift + _us(now))
        return self.last

    def at(self, arrived_at: float) -> int:
        """The id of a request that arrived then. Another may have it."""
        if arrived_at < self._began_at and self._earlier_shift is not None:
            return min(self._earlier_shift + _us(arrived_at), self._base)
        return self._shift + _us(arrived_at)

    def use(self, id_: int, arrived_at: float) -> None:
        """Another process has given this id to a request that arrived then."""
        shift = id_ - _us(arrived_at)
        if id_ < self._base:
            known = self._earlier_shift
            self._earlier_shift = shift if known is None else max(shift, known)
            return
        self.last = max(self.last, id_)
        self._shift = max(self._shift, shift)


def _us(seconds: float) -> int:
    return int(seconds * PER_SECOND)
