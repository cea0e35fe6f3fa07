"""The queue in order of arrival, computed once for all watchers."""

from collections.abc import Callable
from typing import Final

from extproc.core.scheduler.dispatcher import Dispatcher

AGE_S: Final = 0.05
"""The longest age of the result, so that a queue of 100,000 is not counted for each watcher."""


class ArrivalPositions:
    """Positions by ticket id, at most `AGE_S` old."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._positions: dict[int, int] = {}
        self._counted_at = float("-inf")

    def position(self, ticket_id: int) -> int:
        """From 1; 0 if it is not queued, or has only just been."""
        now = self._clock()
        if now - self._counted_at > AGE_S:
            line = self._dispatcher.queue
            self._positions = {ticket.id: place for place, ticket in enumerate(line, start=1)}
            self._counted_at = now
        return self._positions.get(ticket_id, 0)
