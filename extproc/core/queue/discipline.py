"""Whose turn it is at an endpoint that has a free slot.

Among the lanes that the endpoint can serve the best head goes first (see `lane.Turn`), with
two rules beside:
  Aging: every `every`-th time that an endpoint serves the line, it takes whoever came first of
    those it can serve, if that one has waited `after_s`. So a ticket that has waited so long
    goes at the latest when an endpoint that it may use has served `every` times as many
    tickets as came before it, and its own.
  Reservation: a heavy ticket whose turn has come, but not enough slots, is set apart, and
    the endpoint keeps its free slots for it. It blocks nobody elsewhere, each endpoint keeps
    slots for at most one, and only a higher class may pass.
  Both: a heavy ticket whose turn by age has come is set apart for good, in place of a younger
    one. Not even a higher class passes it, for then it would never go, nor would another age
    where slots are kept for it. Where strangers hold what it needs it holds up nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.queue.request_queue import Ticket
from extproc.core.queue.reservation import can_ever_fit, is_kept_for_good, may_pass
from extproc.core.selection.ranking_cache import open_room
from extproc.core.slots.endpoint_slots import Account, fits

if TYPE_CHECKING:
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.queue.constraint_queue import Lane, Turn
    from extproc.core.queue.request_queue import Line
    from extproc.core.queue.slo_attainment import Promises
    from extproc.core.slots.model_loading import Loads


@dataclass(frozen=True, slots=True, kw_only=True)
class Aging:
    """The rule that lets no class starve; `every` must be at least 2."""

    every: int = 10
    after_s: float = 5.0


class Found(NamedTuple):
    """Whose turn it is, where its slots are, and whether that is for its age."""

    ticket: Ticket
    room: Account
    has_aged: bool


class Turns:
    """Reads the line, and sets heavy tickets apart. O(lanes that suit) a call, amortised.

    `displaced` are those that gave way to an older one: somebody has to find them a new place.
    """

    def __init__(self, line: Line, promises: Promises, loads: Loads, aging: Aging) -> None:
        self._line = line
        self._promises = promises
        self._loads = loads
        self._aging = aging
        self.displaced: list[Ticket] = []

    def next_for(self, endpoint: Endpoint, account: Account, now: float) -> Ticket | None:
        """Who may take free slots of this endpoint now, or None. It is still in line."""
        if not account.free_slots and not account.rooms:
            return None
        while True:
            found = self._best(endpoint, account, now)
            if found is None:
                return self._from_apart(endpoint, account)
            ticket, room, has_aged = found
            if fits(ticket.request.weight_slots, room.free_slots, room.slots):
                return ticket
            kept_for = room.reserved_for
            if kept_for is not None and kept_for is not ticket:
                self._line.put_back(kept_for)
                self.displaced.append(kept_for)
            if kept_for is not ticket:
                self._line.set_apart(ticket, room, endpoint.address)
            ticket.has_aged = has_aged

    def _best(self, endpoint: Endpoint, account: Account, now: float) -> Found | None:
        open_lanes: list[tuple[Lane, Account]] = []
        for lane in self._line.lanes_for(endpoint):
            room = open_room(endpoint, account, lane.demand.model, self._loads)
            if room is not None and room.free_slots:
                open_lanes.append((lane, room))
        if not open_lanes:
            return None
        aged = self._aged(open_lanes, account, now)
        if aged is not None:
            return aged
        best: tuple[Turn, Ticket, Account] | None = None
        for lane, room in open_lanes:
            turn, ticket = lane.head(self._promises, now)
            if best is not None and best[0] < turn:
                continue
            kept_for, weight_slots = room.reserved_for, ticket.request.weight_slots
            if kept_for is None or may_pass(ticket.criticality, weight_slots, kept_for, room):
                best = (turn, ticket, room)
        return None if best is None else Found(best[1], best[2], has_aged=False)

    def _aged(
        self, open_lanes: list[tuple[Lane, Account]], account: Account, now: float
    ) -> Found | None:
        if (account.served_from_line + 1) % self._aging.every:
            return None
        oldest: Found | None = None
        for lane, room in open_lanes:
            ticket, kept_for = lane.oldest(), room.reserved_for
            if kept_for is not None:
                if is_kept_for_good(kept_for, room):
                    continue
                ticket = min(ticket, kept_for)
            if can_ever_fit(ticket, room) and (oldest is None or ticket < oldest.ticket):
                oldest = Found(ticket, room, has_aged=True)
        if oldest is None or now - oldest.ticket.entered_at < self._aging.after_s:
            return None
        return oldest

    def _from_apart(self, endpoint: Endpoint, account: Account) -> Ticket | None:
        """A ticket that waits for reserved slots, here or elsewhere, and fits here now."""
        if not account.rooms:  # the usual case must not ask all of them
            kept_for = account.reserved_for
            lightest_slots = (
                self._line.lightest_apart() if kept_for is None else kept_for.request.weight_slots
            )
            if not fits(lightest_slots, account.free_slots, account.slots):
                return None
        for ticket in self._line.apart():
            if not ticket.demand.suits(endpoint):
                continue
            room = open_room(endpoint, account, ticket.demand.model, self._loads)
            if room is None or room.reserved_for not in (None, ticket):
                continue
            if fits(ticket.request.weight_slots, room.free_slots, room.slots):
                return ticket
        return None
