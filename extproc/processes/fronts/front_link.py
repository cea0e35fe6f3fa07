"""One front, as the core sees it: what it said that it holds, what it is sent, and its calls."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from extproc.core.held_state import HeldState, is_final
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.resumption import Resumption
from extproc.transport.call import CallHandler, Metadata
from extproc.transport.status import INTERNAL

log = logging.getLogger("coxswain.fronts")


@dataclass(slots=True)
class FrontCall:
    """A call as a front holds it."""

    number: int
    path: str
    metadata: tuple[tuple[str, str | bytes], ...]
    exchange_id: str
    began_at: float
    state: HeldState | None
    heard: int
    received: int
    is_closed: bool
    kept: list[tuple[int, bytes]]
    pool: str
    """That of the port that it came to, empty if that is of none."""


@dataclass(slots=True)
class Hello:
    """What a front holds. `fleet` are the endpoints that the core before this one used."""

    link: FrontLink
    fleet: tuple[Any, ...]
    calls: list[FrontCall] = field(default_factory=list)


class FrontLink:
    """One front. The owner of its link."""

    def __init__(self, resumption: Resumption, link: Link) -> None:
        self._resumption = resumption
        self.link = link
        self.name = link.name
        self.calls: dict[int, CoreCall] = {}
        self.backlog: list[Frame] = []
        self.adopted: set[int] = set()
        """The calls whose leases were continued before the opening."""
        self.has_greeted = False
        self._changed: dict[int, CoreCall] = {}

    def changed(self, call: CoreCall) -> None:
        """The call has something to send to its front."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._report)
        self._changed[call.number] = call

    def finished(self, call: CoreCall, status: int, text: str) -> None:
        """The service ended the call."""
        self._report_of(call)
        self._changed.pop(call.number, None)
        self.calls.pop(call.number, None)
        self.link.say((frames.FINISH, call.number, status, text))

    def _report(self) -> None:
        changed, self._changed = self._changed, {}
        for call in changed.values():
            if not call.is_over:
                self._report_of(call)
        self.link.flush()

    def _report_of(self, call: CoreCall) -> None:
        state = None
        resumption = self._resumption
        if call.path == resumption.path and not call.has_sent_state and call.handler is not None:
            state = resumption.state_of(call.handler)
            call.has_sent_state = is_final(state)
        replies, call.replies = call.replies, []
        self.link.say((frames.REPLIES, call.number, call.heard, call.is_paused, state, replies))


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
        "was_reset",
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
        self.was_reset = False
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
