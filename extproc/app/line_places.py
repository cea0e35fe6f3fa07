"""Where a waiting request stands, by the id that its client knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from extproc.admin.place import Places
from extproc.status import QueuePlace

if TYPE_CHECKING:
    from extproc.core.dispatcher import Dispatcher
    from extproc.stream.waiting_room import WaitingRoom


class LinePlaces:
    """Looks into the waiting room and counts the line at most once for all who ask."""

    def __init__(self, dispatcher: Dispatcher, waiting_room: WaitingRoom) -> None:
        self._dispatcher = dispatcher
        self._waiting_room = waiting_room
        self._places = Places(dispatcher, time.monotonic)

    def find(self, request_id: str) -> QueuePlace | None:
        """Its place, None when no request with this id waits."""
        ticket = self._waiting_room.find(request_id)
        if ticket is None:
            return None
        waiting = len(self._dispatcher.line)
        position = min(self._places.position(ticket.id) or waiting, waiting)
        return QueuePlace(
            position=position,
            waiting=waiting,
            waited_s=time.monotonic() - ticket.entered_at,
            expected_s=self._dispatcher.expected_s(position),
        )
