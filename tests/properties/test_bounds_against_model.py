"""No bound has more requests than it may, its books are exact whoever leaves, and nobody waits
without a reason: a queued request with a free slot and a place in all of its bounds is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.bounds import Bound, BoundKind, BoundLimits, BoundOptions, is_held_back
from extproc.core.decision import Decision, Picked, Queued, Settlement
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from tests.core.model_fleet import ModelFleet, World
from tests.long_run import IS_LONG_RUN

OBJECTIVES = (
    Objective(name="gold", criticality=Criticality.CRITICAL),
    Objective(name="batch"),
    Objective(name="cheap", criticality=Criticality.SHEDDABLE),
)
PATHS = ("/a", "/b", "/c")


class BoundedFleet(ModelFleet):
    """The same servers and accidents, with requests under bounds that change."""

    def __init__(self, random: Random, world: World) -> None:
        super().__init__(random, world)
        self._events += [self.change_bounds]
        self._weights += [1]
        self.has_changed: set[Bound] = set()
        """Bounds with requests of before their limits were what they are."""
        options = self.dispatcher.options
        objectives = Objectives(by_name={one.name: one for one in OBJECTIVES})
        resolver = replace(options.resolver, objectives=objectives)
        self.dispatcher.renew(replace(options, resolver=resolver), self.now)
        self.change_bounds()

    def change_bounds(self) -> None:
        choice = self.random.choice
        limits = {
            key: BoundLimits(
                running=choice([None, 1, 2, 5]),
                queued=choice([None, 0, 1, 4]),
                queue_timeout_s=choice([None, 1.0]),
                is_last_come=choice([False, True]),
            )
            for key in (
                *((BoundKind.OBJECTIVE, one.name) for one in OBJECTIVES),
                *((BoundKind.PATH, path) for path in PATHS),
            )
            if self.random.random() < 0.7
        }
        options = BoundOptions(limits=limits, paths={path: path for path in PATHS})
        self.dispatcher.renew(replace(self.dispatcher.options, bounds=options), self.now)
        self.has_changed = set(self.dispatcher.view.bounds)

    def submit(self) -> None:
        self.requests += 1
        random = self.random
        request = Request(
            id=str(self.requests),
            timeout_s=random.choice([0.0, 0.5, 3.0]),
            weight_slots=random.choices([1, 2, 5], [90, 8, 2])[0],
            objective=random.choice([None, "gold", "batch", "cheap"]),
            fairness_id=random.choice(["", "a"]),
            path=random.choice(PATHS),
        )
        outcome = self._submit(request)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
            return
        if isinstance(outcome, Rejected) and outcome.reason is Reason.BOUND_REACHED:
            assert "as many as its bound allows" in outcome.detail
        self._take(request, outcome)

    def _submit(self, request: Request) -> Decision:
        """Without a preview where another request may have to leave: it may have had slots."""
        if any(bound.is_queue_full for bound in self.dispatcher.view.bounds):
            return self.dispatcher.submit(request, self.now)
        return super()._submit(request)

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """Who is next is not checked here."""
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def _take(self, request: Request, settlement: Settlement) -> None:
        super()._take(request, settlement)
        if isinstance(settlement, Picked):
            for bound in settlement.lease.bounds:
                most = bound.limits.running
                if most is not None and bound not in self.has_changed:
                    assert bound.running <= most, f"{bound.name} has more than it may"

    def _may_run(self) -> Iterable[Ticket]:
        """Requests that a bound holds back may wait beside an idle slot, no others."""
        return [
            ticket
            for ticket in self.dispatcher.queue
            if ticket.reservation is not None or not is_held_back(ticket.resolved.bounds)
        ]

    def check(self) -> None:
        super().check()
        self.has_changed = {b for b in self.has_changed if b.is_full or b.is_queue_full}
        running = Counter(b for lease in self.dispatcher.view.leases() for b in lease.bounds)
        queued = Counter(b for ticket in self.waiting.values() for b in ticket.resolved.bounds)
        for bound in self.dispatcher.view.bounds:
            assert (bound.running, bound.queued) == (running[bound], queued[bound])
            if bound.limits.queued is not None and bound not in self.has_changed:
                assert bound.queued <= bound.limits.queued

    def finish_all(self) -> None:
        super().finish_all()
        assert all(
            (b.running, b.queued, b.reserved) == (0, 0, 0) for b in self.dispatcher.view.bounds
        )


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=40, deadline=None)
def test_every_claim_holds_under_bounds(seed: int, world: World) -> None:
    fleet = BoundedFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [5, 7, 11, 2026] if IS_LONG_RUN else [2026])
def test_a_long_run_under_bounds(seed: int) -> None:
    fleet = BoundedFleet(Random(seed), World.ACCIDENTS)
    fleet.play(5_000)
    assert len(fleet.settled_ids) > 500
