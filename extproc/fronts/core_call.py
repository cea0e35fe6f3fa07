"""One call of a front, as the core serves it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from extproc.transport.status import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.fronts.front_link import FrontLink
    from extproc.transport.call import CallHandler, Metadata

log = logging.getLogger("coxswain.fronts")


class CoreCall:
    """See `Call`. What is sent in one turn of the event loop leaves together."""

    __slots__ = (
        "_backlog",
        "_muted",
        "exchange_id",
        "front",
        "handler",
        "has_sent_state",
        "heard",
        "is_closed",
        "is_muted",
        "is_over",
        "is_paused",
        "metadata",
        "number",
        "path",
        "replies",
    )

    def __init__(
        self, front: FrontLink, number: int, path: str, metadata: Metadata, exchange_id: str
    ) -> None:
        self.front = front
        self.number = number
        self.path = path
        self.metadata = metadata
        self.exchange_id = exchange_id
        self.handler: CallHandler | None = None
        self.heard = 0
        """How many of its messages its handler has got."""
        self.replies: list[bytes] = []
        self.is_muted = False
        """Whether what is sent was sent before, by another core."""
        self._muted: list[bytes] = []
        self.is_closed = False
        self.is_over = False
        self.is_paused = False
        self.has_sent_state = False
        """Whether its front knows the last state of its exchange."""
        self._backlog: deque[bytes] = deque()

    # What the service calls

    def send(self, message: bytes) -> None:
        if self.is_muted:
            self._muted.append(message)
        elif not self.is_over:
            self.replies.append(message)
            self.front.changed(self)

    def finish(self, status: int, text: str = "") -> None:
        if not self.is_over:
            self.is_over = True
            self.front.finished(self, status, text)
            self.handler = None  # no cycle is left for the collector

    def soon(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    def pause(self) -> None:
        self.is_paused = True
        self.front.changed(self)

    def resume(self) -> None:
        self.is_paused = False
        self.front.changed(self)
        self.deliver()

    # What the front says

    def take(self, message: bytes) -> None:
        """The next message."""
        self._backlog.append(message)
        self.deliver()

    def close(self) -> None:
        """The client sends no more."""
        self.is_closed = True
        self.deliver()

    def repeat(self, message: bytes, is_decided: Callable[[], bool]) -> None:
        """A message that another core has answered: its replies are not sent again. But a decision
        that comes with it is news: that core had queued the request, or not yet decided."""
        if self.is_over:
            return
        was_decided = is_decided()
        self.is_muted = True
        try:
            self.heard += 1
            self._run(message)
        finally:
            self.is_muted = False
            muted, self._muted = self._muted, []
        if not was_decided and is_decided():
            self.replies += muted

    def deliver(self) -> None:
        """Hand over what came, as far as the handler wants it."""
        while self._backlog and not self.is_paused and not self.is_over:
            self.heard += 1
            self._run(self._backlog.popleft())
            self.front.changed(self)
        if self.is_closed and not self._backlog and not self.is_paused and not self.is_over:
            self.is_closed = False
            assert self.handler is not None
            try:
                self.handler.half_closed()
            except Exception as error:  # noqa: BLE001 - it ends this call alone
                self.fail(error)

    def lose(self) -> None:
        """It ended without being finished."""
        if self.is_over:
            return
        self.is_over = True
        handler, self.handler = self.handler, None
        if handler is not None:
            try:
                handler.gone()
            except Exception:
                log.exception("ending a call of %s failed", self.path)

    def fail(self, error: Exception) -> None:
        """End it for its client and for its handler."""
        log.error("a call of %s failed", self.path, exc_info=error)
        if not self.is_over:
            self.front.finished(self, INTERNAL, "internal error")
            self.lose()

    def _run(self, message: bytes) -> None:
        assert self.handler is not None
        try:
            self.handler.receive(message)
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self.fail(error)
