"""Claims about extproc/core/selection/cost.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extproc.core.address import Address
from extproc.core.prediction.latency import DEFAULT_ESTIMATE
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import UNKNOWN_PROMPT_TOKENS, Adapters, Kind, Request
from tests.fakes.steered_fleet import SteeredFleet


@pytest.mark.parametrize(
    ("prompt_tokens", "counted"), [(0, 0), (40, 40), (None, UNKNOWN_PROMPT_TOKENS)]
)
@pytest.mark.parametrize("session", [None, "never seen"])
def test_an_empty_prompt_is_not_an_unknown_one(
    prompt_tokens: int | None, counted: int, session: str | None
) -> None:
    """Whatever else is known of the request."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    scorer = fleet.dispatcher.state.costs
    request = Request(id="r", timeout_s=0.0, prompt_tokens=prompt_tokens, session_id=session)
    cost = scorer.cost(request, address, 0, fleet.now)
    assert cost.first_token_s == DEFAULT_ESTIMATE.first_token_s(counted)
    assert cost.cached_tokens == 0.0


CHAIN = tuple(range(40))


def remembering(capacity_blocks: float) -> tuple[SteeredFleet, Address]:
    """A fleet whose only endpoint has processed the chain, then as much again."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    prefixes = fleet.dispatcher.state.prefix_caches
    prefixes.learn(address, CHAIN, capacity_blocks)
    prefixes.learn(address, tuple(range(1000, 1040)), capacity_blocks)
    return fleet, address


def cached(fleet: SteeredFleet, address: Address, *, is_optimistic: bool, **asked: object) -> float:
    request = Request(id="r", timeout_s=0.0, prompt_blocks=CHAIN, **asked)  # type: ignore[arg-type]
    return fleet.dispatcher.state.costs.cached_tokens(request, address, is_optimistic=is_optimistic)


def test_remembered_blocks_count_up_to_the_assumed_capacity() -> None:
    """And half of those a little beyond in the optimistic estimate: they would never be tried
    otherwise."""
    for capacity_blocks, expected, hoped in ((100, 40, 40), (30, 0, 20), (10, 0, 0)):
        fleet, address = remembering(capacity_blocks)
        for is_optimistic, blocks in ((False, expected), (True, hoped)):
            found = cached(fleet, address, is_optimistic=is_optimistic, prompt_tokens=26_000)
            assert found == blocks * BLOCK_TOKENS


def test_the_last_token_is_never_cached() -> None:
    fleet, address = remembering(100)
    assert cached(fleet, address, is_optimistic=False, prompt_tokens=1000) == 999


def test_a_prompt_of_unknown_length_is_as_long_as_its_read_part() -> None:
    """All parts of the cost use one length: the saving of a cache is a part of it, and no more."""
    fleet, address = remembering(100)
    stranger = fleet.add(1)
    request = Request(id="r", timeout_s=0.0, prompt_blocks=CHAIN)
    scorer = fleet.dispatcher.state.costs
    here, there = (scorer.cost(request, at, 0, fleet.now) for at in (address, stranger))
    assert there.first_token_s == DEFAULT_ESTIMATE.first_token_s(len(CHAIN) * BLOCK_TOKENS)
    assert here.first_token_s + here.saved_s == pytest.approx(there.first_token_s)


def test_the_most_cached_tokens_are_those_where_most_is_remembered() -> None:
    fleet, _ = remembering(100)
    fleet.add(1)
    costs = fleet.dispatcher.state.costs
    request = Request(id="r", timeout_s=0.0, prompt_blocks=CHAIN, prompt_tokens=26_000)
    assert costs.most_cached_tokens(request) == len(CHAIN) * BLOCK_TOKENS
    assert costs.most_cached_tokens(replace(request, prompt_tokens=1000)) == 999
    assert costs.most_cached_tokens(replace(request, kind=Kind.EMBEDDING)) == 0
    assert costs.most_cached_tokens(replace(request, prompt_blocks=(-1,))) == 0
    assert costs.most_cached_tokens(replace(request, prompt_blocks=())) == 0


def test_an_embedding_finds_no_cache() -> None:
    fleet, address = remembering(100)
    assert cached(fleet, address, is_optimistic=True, kind=Kind.EMBEDDING) == 0


@pytest.mark.parametrize("counts", [False, True])
def test_a_prompt_costs_the_answers_beside_it(counts: bool) -> None:
    """The time to read what is not cached, once for each busy slot."""
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED if counts else Discipline.FIRST_COME)
    fleet = SteeredFleet(order=order)
    address = fleet.add(8)
    prefixes = fleet.dispatcher.state.prefix_caches
    prefixes.learn(address, CHAIN, 1000)
    scorer = fleet.dispatcher.state.costs
    tokens = len(CHAIN) * BLOCK_TOKENS + 500
    request = Request(id="r", timeout_s=0.0, prompt_blocks=CHAIN, prompt_tokens=tokens)
    alone, beside = (scorer.cost(request, address, busy, fleet.now) for busy in (0, 3))
    assert alone.stall_s == 0.0
    expected_s = 3 * 500 * DEFAULT_ESTIMATE.prefill_s if counts else 0.0
    assert beside.stall_s == pytest.approx(expected_s)
    parts_s = beside.first_token_s + beside.answer_s + beside.adapter_s
    assert beside.total_s == pytest.approx(parts_s + expected_s)


BOTH = {"models": ["m"], "adapters": ["bard", "pirate"]}


def is_mixed(fleet: SteeredFleet, address: Address, adapters: Adapters) -> bool:
    return fleet.dispatcher.state.in_flight.adapters.has_others(address, adapters)


def test_a_request_with_another_adapter_counts_as_other() -> None:
    """No adapter is one of them: the base model alone."""
    fleet = SteeredFleet()
    address = fleet.add(9, **BOTH)
    kinds: tuple[Adapters, ...] = ("bard", "pirate", frozenset({0}), None)
    assert not any(is_mixed(fleet, address, one) for one in kinds)
    bard = fleet.pick(adapter="bard")
    fleet.pick(adapter="bard")
    assert [is_mixed(fleet, address, one) for one in kinds] == [False, True, True, True]
    plain = fleet.pick()
    assert all(is_mixed(fleet, address, one) for one in kinds), "two kinds run there"
    fleet.finish(bard)
    assert is_mixed(fleet, address, None)
    fleet.finish(plain)
    assert [is_mixed(fleet, address, one) for one in kinds] == [False, True, True, True]


def test_it_counts_where_the_request_really_runs() -> None:
    fleet = SteeredFleet()
    first, second = fleet.add(1, **BOTH), fleet.add(1, **BOTH)
    lease = fleet.pick(adapter="bard", allowed=frozenset({first}))
    fleet.dispatcher.responded(lease, fleet.now, served=second, has_headers=False)
    assert not is_mixed(fleet, first, None) and is_mixed(fleet, second, None)
    fleet.finish(lease)
    assert not is_mixed(fleet, second, None)
    assert len(fleet.dispatcher.state.in_flight) == 0


def test_an_embedding_has_no_answer_to_wait_for() -> None:
    fleet = SteeredFleet()
    address = fleet.add(1)
    request = Request(id="r", timeout_s=0.0, kind=Kind.EMBEDDING, prompt_tokens=40)
    cost = fleet.dispatcher.state.costs.cost(request, address, 0, fleet.now)
    assert cost.answer_s == cost.adapter_s == 0.0 < cost.first_token_s == cost.total_s
