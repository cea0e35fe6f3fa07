"""The order of the queued requests within one flow."""

from dataclasses import dataclass
from enum import Enum
from math import inf


class Discipline(Enum):
    """Which request of a flow is next."""

    FIRST_COME = "first_come"
    SHORTEST_EXPECTED = "shortest_expected"


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
    def by_size_label(self) -> str | None:
        """The discipline as a label for people, None for the order of arrival, which goes without
        saying."""
        return self.discipline.value if self.is_by_size else None

    def overtaken_until(self, entered_at: float) -> float:
        """Until when a request that was queued at that time may be passed by a later one of its
        flow."""
        return entered_at + self.max_overtaken_s if self.is_by_size else -inf


ARRIVAL_ORDER = QueueOrder()
