"""No session and no flow has more requests that run or may be assigned a slot than it may, whoever
leaves, and no request is held back while its session and its flow have room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions, is_held_back
from extproc.core.client_limits import ClientLimit
from extproc.core.decision import Decision, Picked, Queued, Settlement
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.request_groups import Group, full_group
from extproc.core.scheduler.takeover import Place
from tests.core.model_fleet import ModelFleet, World
from tests.long_run import IS_LONG_RUN

OBJECTIVES = (
    Objective(name="gold", criticality=Criticality.CRITICAL),
    Objective(name="quick", queue_s=0.1),
    Objective(name="cheap", criticality=Criticality.SHEDDABLE),
)
BOUNDS = BoundOptions(
    limits={(BoundKind.PATH, "/a"): BoundLimits(running=2, queued=8)}, paths={"/a": "/a"}
)


class GroupedFleet(ModelFleet):
    """The same servers and accidents, with sessions and flows whose limits change."""

    def __init__(self, random: Random, world: World) -> None:
        super().__init__(random, world, queue_max_requests=30)
        self._events += [self.change_limits, self.come_back]
        self._weights += [1, 1]
        if world is not World.QUIET:  # what a scrape sees of ended requests looks foreign then
            self._events += [self.rebuild]
            self._weights += [1]
        self.has_changed: set[Group] = set()
        """Groups with requests of before their limits were what they are."""
        options = self.dispatcher.options
        objectives = Objectives(by_name={one.name: one for one in OBJECTIVES})
        resolver = replace(options.resolver, objectives=objectives)
        options = replace(options, resolver=resolver, bounds=BOUNDS)
        self.dispatcher.renew(options, self.now)
        self.change_limits()

    def change_limits(self) -> None:
        choice = self.random.choice
        limits = {
            name: ClientLimit(per_session=choice([None, 1, 2]), per_flow=choice([None, 1, 3]))
            for name in ("web", "*")
            if self.random.random() < 0.8
        }
        self.dispatcher.renew(replace(self.dispatcher.options, client_limits=limits), self.now)
        self.has_changed = set(self.dispatcher.state.groups.known.values())

    def rebuild(self) -> None:
        """As after an exception. It decides again who is held back."""
        self.dispatcher.rebuild(self.now)
        self.reserved_since.clear()

    def come_back(self) -> None:
        """The queued requests come back in any order, as to a core that takes over."""
        self.dispatcher.hold(None, self.now)
        tickets = list(self.waiting.values())
        self.random.shuffle(tickets)
        self.waiting.clear()
        self.reserved_since.clear()
        for ticket in tickets:
            self.dispatcher.withdraw(ticket, self.now)
            place = Place(ticket.id, ticket.entered_at)
            outcome = self.dispatcher.place(ticket.request, place, self.now)
            assert isinstance(outcome, Queued) and outcome.ticket.id == ticket.id
            self.waiting[ticket.id] = outcome.ticket
        self.waiting = dict(sorted(self.waiting.items()))
        self.dispatcher.assign(self.now)

    def submit(self) -> None:
        self.requests += 1
        random = self.random
        request = Request(
            id=str(self.requests),
            timeout_s=random.choice([0.0, 0.5, 3.0]),
            weight_slots=random.choices([1, 2, 5], [90, 8, 2])[0],
            objective=random.choice([None, None, "gold", "quick", "cheap"]),
            tenant=random.choice(["", "client-web", "client-api"]),
            session_id=random.choice([None, "s1", "s2"]),
            fairness_id=random.choice(["", "f1", "f2"]),
            path=random.choice(["/a", "/b"]),
        )
        outcome = self._submit(request)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
            return
        if isinstance(outcome, Rejected) and outcome.reason is Reason.RATE_LIMITED:
            assert "at once; wait for one to end" in outcome.detail
            assert not request.timeout_s or request.objective == "cheap"
        self._take(request, outcome)

    def _submit(self, request: Request) -> Decision:
        """Without a preview where another request may have to leave: it may have had slots, or
        room."""
        bounds = self.dispatcher.view.bounds
        is_full = len(self.dispatcher.queue) >= self.dispatcher.options.queue.max_requests
        if is_full or any(bound.is_queue_full for bound in bounds):
            return self.dispatcher.submit(request, self.now)
        return super()._submit(request)

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """Who is next is not checked here."""
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def _take(self, request: Request, settlement: Settlement) -> None:
        super()._take(request, settlement)
        if isinstance(settlement, Picked):
            for group in settlement.lease.groups:
                running = self._running()[group]
                is_over = group.most is not None and running > group.most
                assert not is_over or group in self.has_changed, f"{group.key} has more"

    def _running(self) -> Counter[Group]:
        return Counter(g for lease in self.dispatcher.view.leases() for g in lease.groups)

    def _may_run(self) -> Iterable[Ticket]:
        """Requests that a bound, a session or a flow holds back may wait beside an idle slot."""
        return [
            ticket
            for ticket in self.dispatcher.queue
            if ticket.held_by is None
            and (ticket.reservation is not None or not is_held_back(ticket.resolved.bounds))
        ]

    def check(self) -> None:
        super().check()
        counted, held_back = self._running(), 0
        for ticket in self.waiting.values():
            if ticket.held_by is None:
                counted.update(ticket.resolved.groups)
                continue
            held_back += 1
            assert full_group(ticket.resolved.groups), "held back for nothing"
            assert ticket.queued_in is None and ticket.reservation is None
        assert held_back == len(self.dispatcher.queue.held_back)
        known = self.dispatcher.state.groups.known
        assert set(known.values()) >= set(counted)
        for group in known.values():
            assert group.requests == counted[group] and (group.requests or group.held_back)
            if group.most is None or group.requests <= group.most:
                self.has_changed.discard(group)
            assert group not in self.has_changed or group.most is not None
        over = [g for g in known.values() if g.most is not None and g.requests > g.most]
        assert set(over) <= self.has_changed, "more than it may have"

    def finish_all(self) -> None:
        super().finish_all()
        assert not self.dispatcher.state.groups.known
        assert not self.dispatcher.state.groups.opened


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=40, deadline=None)
def test_every_claim_holds_for_sessions_and_flows(seed: int, world: World) -> None:
    fleet = GroupedFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [5, 7, 11, 2026] if IS_LONG_RUN else [2026])
def test_a_long_run_of_sessions_and_flows(seed: int) -> None:
    fleet = GroupedFleet(Random(seed), World.ACCIDENTS)
    fleet.play(5_000)
    assert len(fleet.settled_ids) > 500
