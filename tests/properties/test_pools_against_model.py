"""No request gets a slot, a fallback or a queue position from another pool, and the queue of one is
never full for another, while endpoints move between pools, and pools come and go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Settlement
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from tests.core.model_fleet import ModelFleet, World
from tests.long_run import IS_LONG_RUN

POOLS = ("chat", "batch", "night")
QUEUE = 6


class PooledFleet(ModelFleet):
    """The same servers and accidents, in pools."""

    def __init__(self, random: Random, world: World) -> None:
        super().__init__(random, world, queue_max_requests=QUEUE)
        self.pools: tuple[str, ...] = ()
        self.spilled_over = 0
        self._events += [self.change_pools]
        self._weights += [1]
        self.change_pools()

    def change_pools(self) -> None:
        """Configure two or three of the pools; an unknown one may still have endpoints."""
        self.pools = tuple(self.random.sample(POOLS, self.random.choice([2, 3, 3])))
        options = self.dispatcher.options
        resolver = ResolverOptions(
            pools={
                name: ResolverOptions(objectives=Objectives(default=Objective(pool=name)))
                for name in self.pools
            }
        )
        self.dispatcher.renew(replace(options, resolver=resolver), self.now)

    def _name(self, addresses: list[Address]) -> None:
        specs = [
            EndpointSpec(address=address, pool=self.random.choice(POOLS)) for address in addresses
        ]
        self.dispatcher.set_members("test", specs, self.now)

    def _submit(self, request: Request) -> Decision:
        request = replace(request, pool=self.random.choice(self.pools))
        queued = Counter(one.request.pool for one in self.waiting.values())
        outcome = super()._submit(request)
        if isinstance(outcome, Picked):
            self._check_pool(request, outcome)
        if isinstance(outcome, Rejected) and outcome.reason is Reason.QUEUE_FULL:
            assert queued[request.pool] == QUEUE, "full of requests for another pool"
            self.spilled_over += sum(queued.values()) > QUEUE
        return outcome

    def _check_bypassed(self, passed: list[Ticket]) -> None:
        """A request of another pool passes."""

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        if isinstance(settlement, Picked):
            self._check_pool(ticket.request, settlement)
            earlier = [
                one
                for id_, one in self.waiting.items()
                if id_ < ticket.id and one.request.pool == ticket.request.pool
            ]
            super()._check_bypassed(earlier)
        super().settled(ticket, settlement)

    def _check_pool(self, request: Request, picked: Picked) -> None:
        for address in (picked.lease.address, *picked.fallbacks):
            endpoint = self.dispatcher.fleet.get(address)
            assert endpoint is not None and endpoint.spec.pool == request.pool
        assert picked.is_restricted, "Envoy may choose no other"

    def check(self) -> None:
        super().check()
        queue = self.dispatcher.queue
        counts = Counter(one.request.pool for one in queue)
        assert all(queue.count_for(pool) == counts[pool] for pool in POOLS)
        assert set(counts) <= set(self.pools), "what is for a pool that is gone was rejected"


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=30, deadline=None)
def test_every_claim_holds_in_each_pool(seed: int, world: World) -> None:
    fleet = PooledFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [5, 7, 11, 2026] if IS_LONG_RUN else [2026])
def test_a_long_run_in_pools(seed: int) -> None:
    fleet = PooledFleet(Random(seed), World.ACCIDENTS)
    fleet.play(5_000)
    assert len(fleet.settled_ids) > 500
    assert fleet.spilled_over, "one queue was full beside others"
