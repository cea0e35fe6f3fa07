"""Claims about extproc/core/selection/endpoint_picker.py: affinity against load, in seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.constraints import Constraints
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request, ResolvedRequest
from extproc.core.selection.endpoint_picker import (
    PREFILL_WEIGHT,
    AffinityTarget,
    Selection,
    _least_loaded_of_the_cheapest,
)
from extproc.core.selection.ranking import Ranking
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from tests.fakes.steered_fleet import SteeredFleet

CHAIN = tuple(range(1000, 1400))
LONG = {"prompt_blocks": CHAIN, "prompt_tokens": 26_000}


def busy_for(fleet: SteeredFleet, address: Address, seconds: float) -> None:
    """Its slots are held for this time, as far as is known."""
    for _ in range(10):
        lease = fleet.pick(allowed=frozenset({address}))
        fleet.now += seconds
        fleet.finish(lease)


def target_of(fleet: SteeredFleet, offered: Address) -> AffinityTarget | None:
    request = Request(id="r", timeout_s=60.0, **LONG)  # type: ignore[arg-type]
    return fleet.dispatcher.state.endpoint_picker.affinity_target(
        ResolvedRequest(Constraints()), request, offered, fleet.now
    )


def process_at(fleet: SteeredFleet, target: Address) -> None:
    """A request with the beginning is running there, and uses its only slot."""
    lease = fleet.pick(**LONG, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now)


def test_an_affinity_target_is_waited_for_as_long_as_it_saves() -> None:
    """A second of prefill counts three, because others wait for it, too; little else differs."""
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65_536), fleet.add(1, context_tokens=65_536)
    for address in (target, other):
        busy_for(fleet, address, 0.5)
    process_at(fleet, target)
    found = target_of(fleet, other)
    assert found is not None and found.address == target
    scorer = fleet.dispatcher.state.costs
    request = Request(id="r", timeout_s=60.0, **LONG)  # type: ignore[arg-type]
    here = scorer.cost(request, other, 0, fleet.now)
    there = scorer.cost(request, target, 0, fleet.now)
    spared_s = here.first_token_s - there.first_token_s
    assert found.max_wait_s == pytest.approx(PREFILL_WEIGHT * spared_s, rel=0.05)


def test_affinity_yields_to_load() -> None:
    """The target's slot will be held for longer than the cache would save."""
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65_536), fleet.add(1, context_tokens=65_536)
    busy_for(fleet, target, 500.0)
    process_at(fleet, target)
    assert target_of(fleet, other) is None
    assert fleet.pick(**LONG).address == other


def test_requests_that_already_wait_there_count() -> None:
    """Each further one waits longer; at some point another endpoint is sooner."""
    fleet = SteeredFleet()
    target, other = fleet.add(1, context_tokens=65_536), fleet.add(1, context_tokens=65_536)
    for address in (target, other):
        busy_for(fleet, address, 5.0)
    process_at(fleet, target)
    found = target_of(fleet, other)
    assert found is not None
    pinned = 0
    while target_of(fleet, other) is not None:
        assert fleet.queue(**LONG).pinned_to == target
        pinned += 1
    assert pinned == int(found.max_wait_s / 5.0)
    assert fleet.pick(**LONG).address == other


def test_a_popular_beginning_spreads() -> None:
    """All share it, one after another, so that load alone moves none: no endpoint gets more than
    half as much again as its fair share."""
    fleet = SteeredFleet()
    addresses = [fleet.add(4, context_tokens=65_536) for _ in range(4)]
    served: Counter[Address] = Counter()
    for _ in range(400):
        lease = fleet.pick(**LONG)
        served[lease.address] += 1
        fleet.dispatcher.responded(lease, fleet.now + 0.05)
        fleet.now += 0.1
        fleet.finish(lease)
    assert max(served.values()) <= 1.5 * 400 / len(addresses), served


def test_requests_join_those_with_their_adapter() -> None:
    """Of two endpoints with equal load; by chance one of eight would go to the other, except four
    times in a thousand."""
    fleet = SteeredFleet()
    homes = {}
    for adapter in ("bard", "pirate"):
        address = fleet.add(20, models=["m"], adapters=["bard", "pirate"])
        fleet.pick(adapter=adapter, allowed=frozenset({address}))
        homes[adapter] = address
    for _ in range(4):
        for adapter, target in homes.items():
            assert fleet.pick(adapter=adapter).address == target


PROMPTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "short": lambda number: {"prompt_tokens": 10 + number},
    "long": lambda number: {
        "prompt_blocks": tuple(range(10_000 * number, 10_000 * number + 100)),
        "prompt_tokens": 6400,
    },
    "not read": lambda _: {},
}
"""The attributes of a session's prompts: no two of them begin alike."""


def session_at(fleet: SteeredFleet, target: Address, **asked: Any) -> None:
    """The session's last prompt was processed there."""
    fleet.finish(fleet.pick(session_id="s", allowed=frozenset({target}), **asked))


@pytest.mark.parametrize("kind", PROMPTS)
def test_a_session_stays_where_it_was(kind: str) -> None:
    """For any common beginnings, and any number of prompts: by chance 20 in a row would go to one
    of three endpoints once in a billion times."""
    fleet = SteeredFleet()
    for _ in range(3):
        fleet.add(2)
    served = set()
    for number in range(20):
        lease = fleet.pick(session_id="s", **PROMPTS[kind](number))
        served.add(lease.address)
        fleet.now += 0.5
        fleet.finish(lease)
    assert len(served) == 1


@pytest.mark.parametrize("kind", PROMPTS)
def test_a_session_stays_despite_a_little_load(kind: str) -> None:
    """Its endpoint serves another request, others are idle: that costs less than a quarter."""
    fleet = SteeredFleet()
    target, *_ = [fleet.add(4) for _ in range(3)]
    session_at(fleet, target, **PROMPTS[kind](0))
    fleet.pick(allowed=frozenset({target}))
    assert fleet.pick(session_id="s", **PROMPTS[kind](1)).address == target


@pytest.mark.parametrize("kind", ["short", "long"])
def test_a_session_yields_to_load(kind: str) -> None:
    """It does not wait for a slot, nor for an endpoint that is clearly slower now; then it stays
    where it went."""
    fleet = SteeredFleet()
    full, other = fleet.add(1), fleet.add(1)
    session_at(fleet, full, **PROMPTS[kind](0))
    taken = fleet.pick(allowed=frozenset({full}))
    session_at(fleet, other, **PROMPTS[kind](1))
    fleet.finish(taken)
    assert fleet.pick(session_id="s", **PROMPTS[kind](2)).address == other

    fleet = SteeredFleet()
    busy, idle = fleet.add(20), fleet.add(20)
    session_at(fleet, busy, **PROMPTS[kind](0))
    for _ in range(19):
        fleet.pick(allowed=frozenset({busy}))
    assert fleet.pick(session_id="s", **PROMPTS[kind](1)).address == idle


def test_a_session_yields_to_a_known_cache() -> None:
    """A conversation that continued elsewhere is served there."""
    fleet = SteeredFleet()
    target, reader = (fleet.add(4, context_tokens=65_536) for _ in range(2))
    fleet.finish(fleet.pick(**LONG, allowed=frozenset({reader})))
    session_at(fleet, target)
    assert fleet.pick(session_id="s", **LONG).address == reader


def test_a_session_wakes_no_server() -> None:
    """A server that fell asleep has lost its cache."""
    fleet = SteeredFleet()
    target, awake = fleet.add(4), fleet.add(4)
    session_at(fleet, target, prompt_tokens=100)
    fleet.now += 1.0
    fleet.scrape(target, slots=4, status=ScrapeStatus.ASLEEP)
    assert fleet.pick(session_id="s", prompt_tokens=100).address == awake


def test_a_session_goes_elsewhere_only_while_its_endpoint_is_full() -> None:
    fleet = SteeredFleet()
    first, second = fleet.add(1), fleet.add(1)
    lease = fleet.pick(session_id="s", allowed=frozenset({first}))
    fleet.dispatcher.responded(lease, fleet.now)
    assert fleet.pick(session_id="s").address == second, "the first is full"
    fleet.finish(lease)
    assert fleet.pick(session_id="s").address == first


def test_a_multi_slot_request_does_not_go_to_its_cache_without_enough_slots() -> None:
    fleet = SteeredFleet()
    target, other = (fleet.add(2, context_tokens=65_536) for _ in range(2))
    lease = fleet.pick(prompt_blocks=CHAIN[:4], prompt_tokens=260, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 0.1)
    asked = {"prompt_blocks": CHAIN[:4], "prompt_tokens": 260}
    assert fleet.pick(**asked, weight_slots=2).address == other


def test_no_cache_is_worth_loading_a_model_for() -> None:
    """The router that processed the prompt has unloaded its model."""
    fleet = SteeredFleet()
    a, b = ModelReading(name="a", slots=2), ModelReading(name="b", slots=2)
    unloaded = ModelReading(name="a", is_loaded=False)
    target, other = (fleet.add(4, models=[a, b], context_tokens=65_536) for _ in range(2))
    lease = fleet.pick(model="a", **LONG, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    fleet.finish(lease)
    fleet.now += 5.0
    fleet.scrape(target, slots=2, busy_slots=0, models=[unloaded, b])
    for _ in range(2):
        assert fleet.pick(model="a", **LONG).address == other


@pytest.mark.parametrize(
    ("discipline", "expected"),
    [(Discipline.FIRST_COME, 0), (Discipline.SHORTEST_EXPECTED, 1)],
)
def test_a_long_prompt_goes_where_few_answers_stall(discipline: Discipline, expected: int) -> None:
    """The first server has the larger share of free slots, and three answers to stall; the other
    has one. Only the order by size looks at that."""
    fleet = SteeredFleet(order=QueueOrder(discipline=discipline))
    large, small = fleet.add(8, context_tokens=65_536), fleet.add(2, context_tokens=65_536)
    for address, count in ((large, 3), (small, 1)):
        for _ in range(count):
            lease = fleet.pick(allowed=frozenset({address}))
            fleet.dispatcher.responded(lease, fleet.now)
    blocks = tuple(range(20_000 // BLOCK_TOKENS))
    lease = fleet.pick(prompt_blocks=blocks, prompt_tokens=20_000)
    assert lease.address == (large, small)[expected]


def test_slots_that_are_gone_since_they_were_ranked_are_offered_nevertheless() -> None:
    """The ledger decides then; to fail here would cost the request."""
    fleet = SteeredFleet()
    addresses = [fleet.add(4) for _ in range(2)]
    state = fleet.dispatcher.state
    state.rankings.at(Constraints())
    for address in addresses:
        state.ledger.endpoint_slots(address).foreign_slots = 4
    request = Request(id="r", timeout_s=60.0, prompt_tokens=500)
    chosen = state.endpoint_picker.choose(ResolvedRequest(Constraints()), request, fleet.now)
    assert chosen is not None and chosen.address in addresses and chosen.cost is None


def test_a_cost_that_is_no_number_does_not_prevent_a_choice() -> None:
    fleet = SteeredFleet()
    only = Selection(fleet.add(1), cost_s=math.nan)
    assert _least_loaded_of_the_cheapest([only]) is only


def test_shares_of_use_are_kept_for_a_bounded_number_of_rankings() -> None:
    fleet = SteeredFleet()
    fleet.add(1)
    picker = fleet.dispatcher.state.endpoint_picker
    shares = {picker._fair(Ranking(Random(1)), fleet.now) for _ in range(3 * MAX_RANKINGS)}
    assert len(shares) == 1 and len(picker._fair_share) <= MAX_RANKINGS + 1
