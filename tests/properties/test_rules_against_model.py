"""No request is sent where a rule excludes it at that moment, no slot that rules leave to a queued
request is idle, and the ledger stays exact, whatever the rules answer from one moment to the next.
"""

from __future__ import annotations

from random import Random
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.decision import Picked, Settlement
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.rules import v1
from extproc.rules.active_rules import ActiveRules
from extproc.rules.loading import LoadedRule
from tests.core.model_fleet import ModelFleet, World
from tests.long_run import IS_LONG_RUN


class RuledFleet(ModelFleet):
    """The same servers and accidents, under rules that change their minds."""

    def __init__(self, random: Random, world: World) -> None:
        super().__init__(random, world)
        self.mood = 0
        self._events += [self.change_mind, self.reload]
        self._weights += [3, 1]
        self.reload()

    def may_use(self, request_id: str, address: str) -> bool:
        """A third of the requests are excluded from half of the endpoints, some from all."""
        number = int(request_id)
        if number % 3 or (number + self.mood) % 11 == 0:
            return bool(number % 3)
        return crc32(f"{number % 7} {self.mood} {address}".encode()) % 2 == 0

    def change_mind(self) -> None:
        self.mood += 1

    def reload(self) -> None:
        """New rules, or none; sometimes with one that will be switched off."""

        def cost(request: v1.Request, endpoint: v1.Endpoint) -> float:
            return crc32(f"{request.id} {endpoint.address}".encode()) % 5

        def fail(*_: object) -> bool:
            if self.random.random() < 0.02:
                raise ValueError
            return False

        rules = [LoadedRule("Filter", lambda r, e: self.may_use(r.id, e.address), cost, None)]
        self.is_strict = self.random.random() < 0.8
        if not self.is_strict:
            rules = [LoadedRule("Failing", fail, None, None)] if self.random.random() < 0.5 else []
        self.dispatcher.set_rules(
            ActiveRules(rules, clock=lambda: 0.0) if rules else None, self.now
        )

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """Tickets that wait elsewhere may be passed: arrival is not checked here."""
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def _check_bypassed(self, passed: list[Ticket]) -> None:
        """A request that may use other endpoints passes."""

    def _submit(self, request: Request) -> Picked | object:  # type: ignore[override]
        return self.dispatcher.submit(request, self.now)

    def _take(self, request: Request, settlement: Settlement) -> None:
        if isinstance(settlement, Picked) and self.is_strict:
            for address in (settlement.lease.address, *settlement.fallbacks):
                is_asked = address == settlement.lease.address
                if is_asked:
                    assert self.may_use(request.id, str(address)), "sent where a rule excludes it"
        super()._take(request, settlement)


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=30, deadline=None)
def test_every_claim_holds_under_rules(seed: int, world: World) -> None:
    fleet = RuledFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [5, 7, 11, 2026] if IS_LONG_RUN else [2026])
def test_a_long_run_under_rules(seed: int) -> None:
    fleet = RuledFleet(Random(seed), World.ACCIDENTS)
    fleet.play(5_000)
    assert len(fleet.settled_ids) > 500
