"""The order of the queued requests within one flow."""

from dataclasses import dataclass
from enum import Enum
from math import inf


class Discipline(Enum):
    """Which request of a flow is next."""

    FIRST_COME = "first_come"
    SHORTEST_EXPECTED = "shortest_expected"
    LAST_COME = "last_come"
    STARTED_FIRST = "started_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """The discipline, and after how many seconds in the queue no other request of its flow passes
    a request any more."""

    discipline: Discipline = Discipline.FIRST_COME
    max_overtaken_s: float = 30.0

    @property
    def is_by_size(self) -> bool:
        return self.discipline is Discipline.SHORTEST_EXPECTED

    @property
    def is_started_first(self) -> bool:
        return self.discipline is Discipline.STARTED_FIRST

    @property
    def has_classes(self) -> bool:
        """Whether requests of one flow have classes, of which the lowest is next."""
        return self.is_by_size or self.is_started_first

    @property
    def is_last_come(self) -> bool:
        return self.discipline is Discipline.LAST_COME

    @property
    def label(self) -> str | None:
        """The discipline as a label for people, None for the order of arrival, which goes without
        saying."""
        return None if self.discipline is Discipline.FIRST_COME else self.discipline.value

    def overtaken_until(self, entered_at: float) -> float:
        """Until when a request that was queued at that time may be passed by a later one of its
        flow."""
        return entered_at + self.max_overtaken_s if self.has_classes else -inf


ARRIVAL_ORDER = QueueOrder()
LAST_COME_ORDER = QueueOrder(discipline=Discipline.LAST_COME)
