"""The core's side: serves the calls that fronts hold, and continues those of the core before it.

    hello of each front -> adopt: leases are continued -> (every server is observed)
                        -> open: queued requests are placed, slots assigned, news of fronts heard

Nothing of a front is heard between its hello and the opening: it would be decided without what
other fronts hold. Only the news of leases that are continued are heard at once: the lease
of a request that has ended would hide one that another core has sent to the same server, and a
scrape would not find that. Requests that no core has decided are then heard in the order in which
they began, at whichever front. A front that says hello later is taken over in one step.

In a cluster nothing is heard or sent either while the core has no permission to decide: another
machine may lead. It goes on where it was, or the supervisor ends it.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from extproc.core.constraints import NO_POOL
from extproc.core.held_state import is_final, is_leased, ticket_of
from extproc.processes.fronts import frames
from extproc.processes.fronts.buffered_frames import Said, in_order
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.front_link import CoreCall, FrontCall, FrontLink, Hello
from extproc.processes.fronts.lease_grant import LeaseGrant
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.progress import Progress
from extproc.processes.fronts.resumption import Resumption
from extproc.transport.call import ServiceTable
from extproc.transport.status import UNAVAILABLE

PING_S: Final = 0.25
SILENT_S: Final = 2.0
"""A front of another machine that says nothing for so long is left: what runs there drains."""
ABOUT_CALLS: Final = frozenset({frames.MESSAGE, frames.CLOSED, frames.GONE})
"""The messages that begin with the number of a call that has begun before."""
PAUSED_S: Final = 1.0
"""If a tick comes so late, it was this process that stood still."""

log = logging.getLogger("coxswain.fronts")


class CoreCalls:
    """Of one core. Belongs to one event loop."""

    def __init__(
        self,
        table: ServiceTable,
        resumption: Resumption,
        lease_grant: LeaseGrant | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resumption = resumption
        self._lease_grant = lease_grant
        self._clock = clock
        self._ticked_at = clock()
        self.is_open = False
        self.fronts: dict[Link, FrontLink] = {}
        self.hellos: list[Hello] = []
        """Of the fronts that are to be continued."""
        self.on_other_version: Callable[[str], None] | None = None
        """Called with the name of a front that this core cannot understand."""
        self._refused: set[str] = set()
        self.on_response: Callable[[Any], None] | None = None
        """Called with the counts of a response that a front has read."""
        self.progress = Progress()
        self._table = table
        self._fleet: tuple[Any, ...] = ()
        self._is_behind = False
        """Whether fronts have said something that is not heard yet."""

    def end_calls(self) -> None:
        """End those that still run."""
        for front in list(self.fronts.values()):
            for call in list(front.calls.values()):
                front.finished(call, UNAVAILABLE, "the endpoint picker has stopped")
                call.lose()
            front.link.flush()

    def close(self) -> None:
        """End all links."""
        for link in list(self.fronts):
            link.close()

    def __len__(self) -> int:
        return sum(len(front.calls) for front in self.fronts.values())

    def replace(self, link: Link) -> None:
        """Attach a link in place of one with the same name, which may not have ended yet."""
        for other in [each for each in self.fronts if each.name == link.name]:
            self.lost(other)
            other.close()
        self.attach(link)

    def attach(self, link: Link) -> None:
        """A front will say hello over this link."""
        self.fronts[link] = FrontLink(self.resumption, link)
        if self.is_open:
            self._greet(self.fronts[link])

    def may_decide(self) -> bool:
        """Whether no other core can be in its place."""
        return self._lease_grant is None or self._lease_grant.is_given(self._clock())

    def tick(self) -> None:
        """To be called every `PING_S` in a cluster: pings the fronts of other machines, ends links
        that are silent, and goes on where the permission was missing."""
        now = self._clock()
        was_paused = now - self._ticked_at > PAUSED_S
        self._ticked_at = now
        may_decide = self.may_decide()
        for link in list(self.fronts):
            if link.is_remote:
                link.say_at_once((frames.PING, now, may_decide))
                if link.silent_s() > SILENT_S and not was_paused:
                    log.warning("front %s is silent", link.name)
                    link.close()
        if may_decide and self.is_open:
            self._hear_buffered()
            for link in list(self.fronts):
                link.flush()

    def greeted(self) -> set[str]:
        """The fronts that have said hello."""
        return {front.name for front in self.fronts.values() if front.has_greeted}

    def publish_fleet(self, fleet: tuple[Any, ...]) -> None:
        """Let the fronts keep this for the next core."""
        if fleet != self._fleet:
            self._fleet = fleet
            for link in self.fronts:
                link.say((frames.FLEET, fleet))

    # The owner of links

    def heard(self, link: Link, batch: list[Frame]) -> None:
        """What a front says; before the opening it is kept."""
        front = self.fronts.get(link)
        if front is None or not batch:
            return
        if batch[0][0] == frames.PONG:
            if self._lease_grant is not None:
                self._lease_grant.pledged(link.name, batch[0][1])
            return
        if not front.has_greeted:
            hello, *batch = batch
            if hello[0] != frames.HELLO or hello[2] != frames.VERSION:
                self._refuse(link)
                return
            front.has_greeted = True
            calls = [FrontCall(*each) for each in hello[4]]
            self.hellos.append(Hello(front, tuple(hello[3]), calls))
            if self.is_open:
                self.resumption.hold()
                self.adopt()
                self.open()
        if front.adopted and self.may_decide():
            batch = self._hear_adopted(front, batch)
        may_hear = self.is_open and self.may_decide()
        if not may_hear or self._is_behind:
            front.backlog += batch
            self._is_behind = True
            if may_hear:
                self._hear_buffered()
            return
        for frame in batch:
            self._hear(front, frame)

    def _refuse(self, link: Link) -> None:
        """A front of another version tries again and again: it is said once, and lost once."""
        if link.name in self._refused:
            del self.fronts[link]
        else:
            self._refused.add(link.name)
            log.error("front %s is of another version of Coxswain and is not heard", link.name)
        if self.on_other_version is not None:
            self.on_other_version(link.name)
        link.close()

    def _hear_adopted(self, front: FrontLink, batch: list[Frame]) -> list[Frame]:
        """Hear what is about leases that were continued; returns the rest."""
        rest = []
        for frame in batch:
            if frame[0] in ABOUT_CALLS and frame[1] in front.adopted:
                self._hear(front, frame)
            else:
                rest.append(frame)
        return rest

    def _hear_buffered(self, undecided: Sequence[tuple[FrontCall, CoreCall]] = ()) -> None:
        """Hear the news of these calls, and what fronts have said since."""
        self._is_behind = False
        said: dict[FrontLink, list[Said]] = {}
        for held, call in undecided:
            entry = (held.began_at, partial(self._hear_undecided, held, call))
            said.setdefault(call.front, []).append(entry)
        for front in self.fronts.values():
            if not front.has_greeted:
                continue
            backlog, front.backlog = front.backlog, []
            said.setdefault(front, []).extend(
                (frame[5] if frame[0] == frames.OPEN else None, partial(self._hear, front, frame))
                for frame in backlog
            )
        for hear in in_order(said.values()):
            hear()

    def lost(self, link: Link) -> None:
        """A front is gone: its requests that run drain, and its queued ones may come again."""
        front = self.fronts.pop(link, None)
        if front is None:
            return
        self.hellos = [hello for hello in self.hellos if hello.link is not front]
        calls, front.calls = front.calls, {}
        for call in calls.values():
            if call.path == self.resumption.path and call.handler is not None:
                self.resumption.leave(call.handler)
        for call in calls.values():
            self.progress.step()
            call.lose()
        self.resumption.front_lost(link.name)

    def silence(self, name: str, *, is_silent: bool) -> None:
        """A front of this machine stands still, or goes on."""
        if not is_silent:
            self.resumption.front_heard(name)
        elif any(link.name == name for link in self.fronts):
            self.resumption.front_silent(name)

    # A takeover

    def held_addresses(self) -> tuple[set[str], dict[str, Any]]:
        """The endpoints that the fronts' leases name, and those that the core before used."""
        fleet: dict[str, Any] = {}
        for hello in self.hellos:
            fleet.update({entry[0]: entry for entry in hello.fleet})
        leased = {
            held.state[1]
            for hello in self.hellos
            for held in hello.calls
            if held.state is not None and is_leased(held.state)
        }
        return leased, fleet

    def adopt(self) -> int:
        """Continue all leases that fronts hold, and hear which of them have ended; returns how
        many."""
        adopted: list[tuple[FrontCall, CoreCall]] = []
        for hello in self.hellos:
            for held in hello.calls:
                if held.path == self.resumption.path and is_leased(held.state):
                    adopted.append((held, self._continue(hello.link, held)))
                    hello.link.adopted.add(held.number)
        for held, call in adopted:
            self._hear_news(held, call)
        for hello in self.hellos:
            hello.link.backlog = self._hear_adopted(hello.link, hello.link.backlog)
        return len(adopted)

    def open(self, *, is_successor: bool = False) -> int:
        """Place queued requests, assign slots, and hear what fronts said since; returns how many
        were placed. A successor of a leader on another machine assigns none before all have a
        place: some were queued at the fronts of that machine."""
        hellos, self.hellos = self.hellos, []
        for hello in hellos:
            hello.link.adopted.clear()
        others: list[tuple[Hello, FrontCall]] = [
            (hello, held) for hello in hellos for held in hello.calls if not is_leased(held.state)
        ]
        queued = [one for one in others if ticket_of(one[1].state) is not None]
        queued.sort(key=lambda one: ticket_of(one[1].state) or 0)
        rest = [one for one in others if ticket_of(one[1].state) is None]
        rest.sort(key=lambda one: one[1].began_at)
        continued = [(held, self._continue(hello.link, held)) for hello, held in queued]
        undecided = [(held, self._continue(hello.link, held)) for hello, held in rest]
        self.is_open = True
        if is_successor:
            self.resumption.leader_lost()
        else:
            self.resumption.assign()
        try:
            for held, call in continued:
                self._hear_news(held, call)
            self._hear_buffered(undecided)
        finally:
            if is_successor:
                self.resumption.assign()
        for hello in hellos:
            self._greet(hello.link)
        return len(queued)

    def _continue(self, front: FrontLink, held: FrontCall) -> CoreCall:
        """Take a call over, without what no core has answered yet."""
        self.progress.step()
        call = CoreCall(front, held.number, held.path, held.metadata, held.exchange_id)
        front.calls[held.number] = call
        if held.path != self.resumption.path:
            return call
        resumption = self.resumption
        call.handler = handler = resumption.begin(call, held.exchange_id, held.began_at, held.pool)
        known = [message for number, message in held.kept if number < held.heard]
        if is_leased(held.state):
            assert held.state is not None
            call.has_sent_state = True
            resumption.resume(handler, known.pop(0), held.state)
        elif ticket_of(held.state) is not None:
            assert held.state is not None
            resumption.place(handler, held.state)
        for message in known:
            call.repeat(message, lambda: is_final(resumption.state_of(handler)))
        call.heard = held.heard
        front.changed(call)
        return call

    def _hear_undecided(self, held: FrontCall, call: CoreCall) -> None:
        if call.handler is not None and held.kept and not held.heard:
            self.resumption.claim(call.handler, held.kept[0][1])
        self._hear_news(held, call)

    def _hear_news(self, held: FrontCall, call: CoreCall) -> None:
        self.progress.step()
        if call.is_over:
            return
        if call.handler is None:
            call.handler = self._table[held.path](call)
            news = [message for _, message in held.kept]
        else:
            news = [message for number, message in held.kept if number >= held.heard]
        for message in news:
            call.take(message)
        if held.is_closed and not call.is_over:
            call.close()

    # Every day

    def _greet(self, front: FrontLink) -> None:
        front.link.say((frames.FLEET, self._fleet))
        front.link.say((frames.OPENED,))

    def _hear(self, front: FrontLink, frame: Frame) -> None:
        self.progress.step()
        kind, number = frame[0], frame[1]
        if kind == frames.MESSAGE:
            call = front.calls.get(number)
            if call is not None:
                if not call.heard and call.path == self.resumption.path:
                    assert call.handler is not None
                    self.resumption.claim(call.handler, frame[2])
                call.take(frame[2])
        elif kind == frames.OPEN:
            self._open_call(front, *frame[1:])
        elif kind == frames.GONE:
            call = front.calls.pop(number, None)
            if call is not None:
                call.was_reset = frame[2]
                call.lose()
            front.link.say((frames.ENDED, number))
        elif kind == frames.READ:
            if self.on_response is not None:
                self.on_response(frame[1:])
            front.link.say((frames.TAKEN, number))
        elif kind == frames.CLOSED:
            call = front.calls.get(number)
            if call is not None:
                call.close()

    def _open_call(
        self,
        front: FrontLink,
        number: int,
        path: str,
        metadata: tuple[tuple[str, str | bytes], ...],
        exchange_id: str,
        began_at: float,
        pool: str = NO_POOL,
    ) -> None:
        call = front.calls[number] = CoreCall(front, number, path, metadata, exchange_id)
        try:
            if path == self.resumption.path:
                call.handler = self.resumption.begin(call, exchange_id, began_at, pool)
            else:
                call.handler = self._table[path](call)
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            call.fail(error)
