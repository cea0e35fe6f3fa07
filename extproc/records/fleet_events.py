"""What happened to the fleet and to the picker: one list for the dashboard and for commands.

It is in memory; the log has the same for longer.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final

MAX_EVENTS: Final = 2000
MAX_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """`id` is its number, `at` is monotonic seconds; `name` is how people know the endpoint, empty
    if it concerns none, `model` and `client` are those that it concerns, if any."""

    id: int
    at: float
    kind: str
    text: str
    address: str = ""
    name: str = ""
    model: str = ""
    client: str = ""


class FleetEvents:
    """Belongs to one event loop. Of more than `MAX_EVENTS` the oldest are forgotten."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is the core's."""
        self._clock = clock
        self._unix_clock = unix_clock
        self._events: deque[FleetEvent] = deque(maxlen=MAX_EVENTS)
        self.last = 0
        """The number of the newest event; the first has 1."""
        self.instance = f"{unix_clock():.6f}"
        """Distinguishes this process from the one before: its numbers begin again."""

    def add(
        self,
        kind: str,
        text: str,
        *,
        address: str = "",
        name: str = "",
        model: str = "",
        client: str = "",
        at: float | None = None,
    ) -> None:
        """Something happened now, or `at` that time."""
        self.last += 1
        self._events.append(
            FleetEvent(
                id=self.last,
                at=self._clock() if at is None else at,
                kind=kind,
                text=" ".join(text.split())[:MAX_CHARS],
                address=address,
                name=name,
                model=model,
                client=client,
            )
        )

    def after(self, number: int) -> Iterator[FleetEvent]:
        """Those with higher numbers, oldest first."""
        return dropwhile(lambda event: event.id <= number, iter(self._events))

    def newest_first(self) -> Iterator[FleetEvent]:
        """All that are kept."""
        return reversed(self._events)

    def unix_offset_s(self) -> float:
        """What the clock of Unix time is ahead of the core's."""
        return self._unix_clock() - self._clock()
