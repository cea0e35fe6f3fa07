"""Where a waiting request stands, by the id that its client knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from extproc.status import QueuePosition

if TYPE_CHECKING:
    from extproc.core.scheduler.dispatcher import Dispatcher
    from extproc.stream.pending_streams import PendingStreams


class QueuePositions:
    """Looks into the waiting room, and asks the core about the ticket found there."""

    def __init__(self, dispatcher: Dispatcher, waiting_room: PendingStreams) -> None:
        self._dispatcher = dispatcher
        self._waiting_room = waiting_room

    def find(self, request_id: str) -> QueuePosition | None:
        """Its place, None when no request with this id waits."""
        ticket = self._waiting_room.find(request_id)
        if ticket is None:
            return None
        now = time.monotonic()
        place = self._dispatcher.position_of(ticket, now)
        return QueuePosition(
            position=place.position,
            waiting=place.of,
            waited_s=now - ticket.entered_at,
            expected_s=place.expected_s,
        )
