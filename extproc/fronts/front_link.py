"""One front, as the core sees it: what it said that it holds, and what it is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from extproc.fronts import frames
from extproc.fronts.continuer import Continuer, State
from extproc.fronts.core_call import CoreCall
from extproc.fronts.frames import Frame
from extproc.fronts.link import Link


@dataclass(slots=True)
class FrontCall:
    """A call as a front holds it."""

    number: int
    path: str
    metadata: tuple[tuple[str, str | bytes], ...]
    exchange_id: str
    began_at: float
    state: State | None
    heard: int
    received: int
    is_closed: bool
    kept: list[tuple[int, bytes]]


@dataclass(slots=True)
class Hello:
    """What a front holds. `fleet` are the endpoints that the core before this one used."""

    link: FrontLink
    fleet: tuple[Any, ...]
    calls: list[FrontCall] = field(default_factory=list)


class FrontLink:
    """One front. The owner of its link."""

    def __init__(self, continuer: Continuer, link: Link) -> None:
        self._continuer = continuer
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
        continuer = self._continuer
        if call.path == continuer.path and not call.has_sent_state and call.handler is not None:
            state = continuer.state_of(call.handler)
            call.has_sent_state = state is not None and continuer.is_final(state)
        replies, call.replies = call.replies, []
        self.link.say((frames.REPLIES, call.number, call.heard, call.is_paused, state, replies))
