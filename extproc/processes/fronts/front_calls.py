"""A front's side: holds the calls of Envoys, and passes them to the core that leads.

While there is no core, calls wait: requests stay where they are, and Envoy is asked for patience
where its configuration has little. A new core gets everything with the first message.

In a cluster a core of another machine may take over while this process or the network stands still.
So what comes after a pause is not believed: the link is left, and the core that leads is asked.
"""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from extproc.core.constraints import NO_POOL
from extproc.core.held_state import HeldState, is_final, is_over, ticket_of
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.held_call import HeldCall
from extproc.processes.fronts.held_responses import HeldResponses
from extproc.processes.fronts.lease_grant import PLEDGE_S
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.progress import Progress
from extproc.transport.call import Call, CallHandler, ServiceTable
from extproc.transport.status import OK, UNAVAILABLE
from extproc.usage.meter import ReadResponse

SILENT_S: Final = 0.25
"""After so long without a reply of the core, Envoy is asked to wait."""
CHECK_S: Final = 0.1
MAX_ENDED: Final = 20_000
NO_CORE: Final = "no endpoint picker leads"

log = logging.getLogger("coxswain.front")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontOptions:
    """`restored` is the path of the calls that another core can continue; others are ended when
    their core is lost, and their clients open them again. `extension` is the message that asks
    Envoy to wait, `waits_long` says from a call's metadata that it need not be asked. `new_id`
    makes ids of exchanges. In a cluster, `patience_s` is how long calls wait for a core before
    their clients are sent elsewhere; None waits for ever."""

    restored: str
    extension: bytes
    waits_long: Callable[[Call], bool]
    new_id: Callable[[], str]
    patience_s: float | None = None


class FrontCalls:
    """All calls of one front. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        options: FrontOptions,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.on_lost: Callable[[], None] | None = None
        """Called when the core is lost."""
        self.on_opened: Callable[[], None] | None = None
        """Called when a core begins to decide."""
        self.progress = Progress()
        self._options = options
        self._loop = loop
        self._clock = clock
        self._numbers = itertools.count(1)
        self._calls: dict[int, HeldCall] = {}
        self._ended: OrderedDict[int, HeldCall] = OrderedDict()
        """Those that had a server, and of whose end no core has heard."""
        self.responses = HeldResponses(self._say_read)
        self._due: OrderedDict[int, float] = OrderedDict()
        """The calls with messages that no core has taken, and since when."""
        self._throttled: set[HeldCall] = set()
        self._link: Link | None = None
        self._fleet: tuple[Any, ...] = ()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_closed = False
        self.on_given_up: Callable[[], None] | None = None
        """Called when calls have waited for a core for too long."""
        self.pledged_until = 0.0
        """Until when the replies of another core than the last may not be used."""
        self.decides_until = 0.0
        """Until when the core that is followed is taken for one that decides."""
        self._ticked_at = clock()
        self._alone_since: float | None = clock()
        self._has_given_up = False

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def requests(self) -> int:
        """The calls that another core can continue."""
        return sum(held.path == self._options.restored for held in self._calls.values())

    def add_to(self, table: ServiceTable, paths: Iterable[str], pool: str = NO_POOL) -> None:
        """Pass the calls of these methods to the core; of the port of a pool with its name."""
        for path in paths:
            table[path] = partial(self._open, path, pool)

    def start(self) -> None:
        """Begin to look for requests to which no core replies."""
        self._timer = self._loop.call_later(CHECK_S, self._check)

    def stop(self) -> None:
        """End the checks and the link; the calls are the transport's to end."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()
        if self._timer is not None:
            self._timer.cancel()

    def follow(self, link: Link) -> None:
        """From now on the core behind `link` serves. It gets all calls first."""
        old, self._link = self._link, link
        link.on_writable = self._writable
        self._alone_since = None
        if old is not None:
            old.close()
            self._forget_core()
        held = (*self._ended.values(), *self._calls.values())
        calls = [each.as_plain() for each in held]
        link.say((frames.HELLO, self.name, frames.VERSION, self._fleet, calls))
        for each in self._ended.values():
            link.say((frames.GONE, each.number, each.call.was_reset))
        self.responses.say_again()

    def leave(self) -> None:
        """Leave the core that is followed, if any; its calls wait for the next one."""
        link = self._link
        if link is None:
            return
        self._link = None
        self._alone_since = self._clock()
        self.decides_until = 0.0
        link.close()
        self._forget_core()

    # What the calls say

    def _open(self, path: str, pool: str, call: Call) -> CallHandler:
        self.progress.step()
        number = next(self._numbers)
        held = HeldCall(self, call, number, path, self._options.new_id(), self._clock(), pool)
        held.waits_long = path == self._options.restored and self._options.waits_long(call)
        self._calls[number] = held
        if self._link is not None:
            metadata = tuple(call.metadata)
            opening = (number, path, metadata, held.exchange_id, held.began_at, pool)
            self._link.say((frames.OPEN, *opening))
        return held

    def received(self, held: HeldCall, message: bytes) -> None:
        """A message came; it is passed on."""
        if self._has_given_up:
            self._drop(held)
            held.call.finish(UNAVAILABLE, NO_CORE)
            return
        link = self._link
        if held.path == self._options.restored:
            self._due.setdefault(held.number, self._clock())
        elif link is not None:
            held.kept.clear()  # it is not continued by another core
        if link is None:
            return
        link.say((frames.MESSAGE, held.number, message))
        if link.is_throttled:
            held.call.pause()
            self._throttled.add(held)

    def half_closed(self, held: HeldCall) -> None:
        """Its client sends no more."""
        if self._link is not None:
            self._link.say((frames.CLOSED, held.number))

    def gone(self, held: HeldCall) -> None:
        """The call ended. One with a server is reported until a core has heard of it: its slot is
        free or drains, and it counts."""
        self.progress.step()
        self._drop(held)
        has_server = is_final(held.state) and not is_over(held.state)
        if held.path == self._options.restored and has_server:
            self._ended[held.number] = held
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        if self._link is not None:
            self._link.say((frames.GONE, held.number, held.call.was_reset))

    # What the core says: the owner of a link

    def heard(self, link: Link, batch: list[Frame]) -> None:
        """Messages of the core; of one that was left, nothing counts."""
        if link is not self._link:
            return
        if self._options.patience_s is not None and self._is_late(link):
            link.close()
            return
        for frame in batch:
            self.progress.step()
            kind = frame[0]
            if kind == frames.REPLIES:
                self._reply(*frame[1:])
            elif kind == frames.FINISH:
                held = self._calls.get(frame[1])
                if held is not None:
                    self._drop(held)
                    held.call.finish(frame[2], frame[3])
            elif kind == frames.ENDED:
                self._ended.pop(frame[1], None)
            elif kind == frames.TAKEN:
                self.responses.taken(frame[1])
            elif kind == frames.FLEET:
                self._fleet = frame[1]
            elif kind == frames.OPENED:
                self._has_given_up = False
                if self.on_opened is not None:
                    self.on_opened()
            elif kind == frames.PING:
                now = self._clock()
                self.pledged_until = now + PLEDGE_S
                if frame[2]:
                    self.decides_until = now + PLEDGE_S
                link.say_at_once((frames.PONG, frame[1]))

    def lost(self, link: Link) -> None:
        """The core is gone: what it said to the end has been read."""
        if link is not self._link:
            return
        self._link = None
        self._alone_since = self._clock()
        self.decides_until = 0.0
        self._forget_core()
        if self.on_lost is not None and not self._is_closed:
            self.on_lost()

    def _writable(self, link: Link) -> None:
        """The core has read: Envoys are read again."""
        if link is self._link:
            self._release_throttled()

    def _reply(
        self,
        number: int,
        heard: int,
        is_paused: bool,
        state: HeldState | None,
        replies: list[bytes],
    ) -> None:
        held = self._calls.get(number)
        if held is None:
            return  # its client left, and the core hears of that
        if ticket_of(state) is not None and (held.is_extended or held.waits_long):
            replies = []  # a queued request has nothing else to say
        held.update(heard, is_paused=is_paused, state=state)
        if heard >= held.received:
            self._due.pop(number, None)
        for reply in replies:
            held.call.send(reply)

    # Itself

    def _say_read(self, read: ReadResponse) -> None:
        if self._link is not None:
            self._link.say((frames.READ, *read))

    def _drop(self, held: HeldCall) -> None:
        self._calls.pop(held.number, None)
        self._due.pop(held.number, None)
        self._throttled.discard(held)

    def _forget_core(self) -> None:
        """End the calls that no other core continues."""
        self._release_throttled()
        for held in list(self._calls.values()):
            if held.path == self._options.restored and not is_over(held.state):
                continue
            self._drop(held)
            if is_over(held.state):
                held.call.finish(OK)
            else:
                held.call.finish(UNAVAILABLE, "the picker's core is replaced")

    def _release_throttled(self) -> None:
        throttled, self._throttled = self._throttled, set()
        for held in throttled:
            if not held.is_paused:
                held.call.resume()

    def _is_late(self, link: Link) -> bool:
        """Whether what a link brings may come from a core that was replaced meanwhile."""
        stood_still_s = self._clock() - self._ticked_at
        return stood_still_s > PLEDGE_S or (link.is_remote and link.silent_s() > PLEDGE_S)

    def _give_up(self) -> None:
        """Send clients elsewhere that no core has served."""
        self._has_given_up = True
        log.error("no core has led for %g s", self._options.patience_s)
        if self.on_given_up is not None:
            self.on_given_up()
        for held in list(self._calls.values()):
            if held.path != self._options.restored or not is_final(held.state):
                self._drop(held)
                held.call.finish(UNAVAILABLE, NO_CORE)

    def _check_cluster(self, patience_s: float) -> None:
        link = self._link
        if link is not None and self._is_late(link):
            log.warning("the core is silent")
            link.close()
        self._ticked_at = self._clock()
        if self._alone_since is None or self._has_given_up:
            return
        if self._ticked_at - self._alone_since > patience_s:
            self._give_up()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        if self._options.patience_s is not None:
            self._check_cluster(self._options.patience_s)
        before = self._clock() - SILENT_S
        while self._due:
            number, since = next(iter(self._due.items()))
            if since > before:
                break
            del self._due[number]
            held = self._calls[number]
            if not held.is_extended and not held.waits_long:
                held.is_extended = True
                held.call.send(self._options.extension)
