"""The rules of the ledger hold for requests with subset hints, criticalities, tenants and affinity.
Only the order of arrival is not checked here."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.decision import Picked, Queued
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from tests.core.model_fleet import CAPS, ModelFleet, World
from tests.fakes.core_events import listen
from tests.long_run import IS_LONG_RUN

OBJECTIVES = (
    Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=0.2),
    Objective(name="chat", ttft_s=0.5),
    Objective(name="batch", weight=0.2),
    Objective(name="cheap", criticality=Criticality.SHEDDABLE),
)


class ChoosyFleet(ModelFleet):
    """The same servers and accidents, with different requests."""

    def __init__(self, random: Random, world: World) -> None:
        super().__init__(random, world)
        resolver = ResolverOptions(
            objectives=Objectives(by_name={one.name: one for one in OBJECTIVES})
        )
        self.dispatcher = listen(
            Dispatcher(
                random,
                DispatcherOptions(
                    queue=QueueLimits(max_requests=30),
                    draining_caps=CAPS,
                    health=HealthOptions(stale_after_s=2.0),
                    resolver=resolver,
                ),
            ),
            self,
        )
        self._events.append(self.answer)
        self._weights.append(20)

    def submit(self) -> None:
        self.requests += 1
        random = self.random
        members = [endpoint.address for endpoint in self.dispatcher.fleet]
        some = frozenset(random.sample(members, min(2, len(members))))
        chat = random.randrange(12)
        blocks = tuple(hash((chat, depth)) for depth in range(random.choice([0, 0, 5, 40])))
        request = Request(
            id=str(self.requests),
            timeout_s=random.choice([0.0, 0.5, 3.0]),
            weight_slots=random.choices([1, 2, 5], [90, 8, 2])[0],
            allowed=some if some and random.random() < 0.2 else None,
            objective=random.choice([None, "gold", "chat", "batch", "cheap"]),
            fairness_id=random.choice(["", "a", "b"]),
            session_id=random.choice([None, str(chat)]),
            prompt_blocks=blocks,
            prompt_tokens=64 * len(blocks) + 30 if blocks else None,
        )
        outcome = self._submit(request)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
            return
        self._take(request, outcome)
        if isinstance(outcome, Picked) and request.allowed is not None:
            assert outcome.lease.address in request.allowed

    def _check_bypassed(self, passed: list[Ticket]) -> None:
        """Criticality, SLOs and shares decide here, not arrival."""

    def answer(self) -> None:
        """An answer begins."""
        if self.running:
            lease = self.random.choice(list(self.running.values()))
            self.dispatcher.responded(lease, self.now)

    def check(self) -> None:
        super().check()
        state = self.dispatcher.state
        flows = list(state.fairness.flows())
        assert sum(flow.waiting for flow in flows) == len(state.queue)
        assert sum(flow.running for flow in flows) == len(state.in_flight)
        for ticket in self.waiting.values():
            place = self.dispatcher.view.position_of(ticket, self.now)
            assert 1 <= place.position <= place.queued <= len(state.queue)


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=40, deadline=None)
def test_every_claim_holds_for_different_requests(seed: int, world: World) -> None:
    fleet = ChoosyFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [5, 7, 11, 2026] if IS_LONG_RUN else [2026])
@pytest.mark.parametrize("world", World)
def test_a_long_run_of_different_requests(world: World, seed: int) -> None:
    fleet = ChoosyFleet(Random(seed), world)
    fleet.play(10_000)
    assert len(fleet.settled_ids) > 1_000
