"""The queue position of a request, by its request id."""

import time
from collections.abc import Callable

from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.status import QueuePosition
from extproc.stream.pending_streams import PendingStreams


class QueuePositions:
    """Finds the ticket among the pending streams, and asks the core for its position."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pending_streams: PendingStreams,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the core's."""
        self._dispatcher = dispatcher
        self._pending_streams = pending_streams
        self._clock = clock

    def find(self, request_id: str) -> QueuePosition | None:
        """Its queue position, None if no request with this id is queued."""
        ticket = self._pending_streams.find(request_id)
        if ticket is None:
            return None
        now = self._clock()
        position = self._dispatcher.position_of(ticket, now)
        load = self._dispatcher.load_of(ticket.resolved.constraints.model)
        return QueuePosition(
            position=position.position,
            queued=position.queued,
            waited_s=now - ticket.entered_at,
            expected_s=position.expected_s,
            order=self._dispatcher.queue_order.by_size_label,
            load="" if load is None else load.subject,
            note="" if load is None else load.note(now),
        )
