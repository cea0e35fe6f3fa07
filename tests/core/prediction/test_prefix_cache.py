"""Claims about prefix caches: extproc/core/prediction/prefix_cache.py, and affinity to them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.observation import ModelReading, SlotReading
from extproc.core.prediction.prefix_cache import (
    MAX_BLOCKS_ALL,
    MAX_BLOCKS_EACH,
    PrefixIndex,
    Segment,
)
from extproc.core.prompt_blocks import chain as chain_of
from extproc.core.request import Kind
from tests.fakes.steered_fleet import SteeredFleet

A, B = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)


def test_a_processed_prompt_is_expected_in_the_cache() -> None:
    index = PrefixIndex()
    index.learn(A, (1, 2, 3), 100)
    memory = index.memory(A)
    assert memory is not None
    assert memory.depth((1, 2, 9)) == 2 and memory.expected_hit((1, 2, 3, 4), 3) == 3
    assert index.holders((1, 2, 7), 4) == [A]
    assert index.holders((7, 2), 4) == []


def test_equal_holders_come_in_the_order_of_processing() -> None:
    """The same in every process, so that simulations are reproducible."""
    index = PrefixIndex()
    readers = [Address("10.0.0.1", port) for port in range(20, 0, -1)]
    for address in readers:
        index.learn(address, (1,), 100)
    assert index.holders((1,), 20) == readers
    index.forget(readers[3])
    assert index.holders((1,), 20) == readers[:3] + readers[4:]


def test_a_restart_forgets_all() -> None:
    index = PrefixIndex()
    index.learn(A, (1, 2), 100)
    index.learn(B, (1,), 100)
    index.forget(A)
    assert index.memory(A) is None and index.holders((1, 2), 4) == [B]
    index.forget(B)
    assert len(index) == 0


def test_what_an_endpoint_does_not_hold_is_not_taken_from_another() -> None:
    index = PrefixIndex()
    index.learn(A, (1,), 100)
    index._drop(1, B)
    assert index.holders((1,), 4) == [A]


def test_the_longest_hit_is_that_of_the_endpoint_that_remembers_most() -> None:
    index = PrefixIndex()
    index.learn(A, (1, 2, 3), 100)
    index.learn(B, (1,), 100)
    assert index.longest_hit((1, 2, 9)) == 2
    assert index.longest_hit((9, 1)) == index.longest_hit(()) == 0
    index.learn(B, tuple(range(100, 160)), 50)
    assert index.longest_hit((1, 2, 3)) == 3, "other prompts at another endpoint age nothing here"
    index.learn(A, tuple(range(200, 320)), 100)
    assert index.longest_hit((1, 2, 3)) == 0, "remembered, but older than the capacity"


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 5), min_size=1, max_size=6))))
@settings(deadline=None)
def test_a_remembered_block_has_all_before_it(reads: list[tuple[bool, list[int]]]) -> None:
    """After any calls, so that depths can be found by bisection."""
    index = PrefixIndex()
    chains = set()
    for is_a, path in reads:
        chain = tuple(hash(tuple(path[: end + 1])) for end in range(len(path)))
        chains.add(chain)
        index.learn(A if is_a else B, chain, 3)
    for address in (A, B):
        memory = index.memory(address)
        for chain in chains if memory is not None else ():
            assert memory is not None
            known = [block in memory.blocks for block in chain]
            assert known == sorted(known, reverse=True)
            assert memory.depth(chain) == sum(known)
            ages = [memory.age(block) for block in chain[: sum(known)]]
            assert ages == sorted(ages)


def test_the_memory_is_bounded() -> None:
    index = PrefixIndex()
    random = Random(1)
    for _ in range(50):
        index.learn(A, tuple(random.getrandbits(60) for _ in range(200)), 1e9)
    memory = index.memory(A)
    assert memory is not None and len(memory.blocks) == len(index) == MAX_BLOCKS_EACH


def test_the_assumed_capacity_follows_what_was_found() -> None:
    """Old blocks that were cached raise it, young ones that were not lower it."""
    index = PrefixIndex()
    index.learn(A, (1,), 100)
    memory = index.memory(A)
    assert memory is not None

    def find(found_blocks: float, *segments: Segment) -> float:
        memory.correct((), segments, found_blocks, is_learned=True)
        return memory.capacity

    assert find(10, Segment(4, 50), Segment(10, 90)) == 100
    for _ in range(40):
        find(10, Segment(4, 50), Segment(10, 400))
    assert 400 < memory.capacity <= 440
    for _ in range(40):
        find(4, Segment(4, 50), Segment(10, 200))
    assert 180 <= memory.capacity < 200


@pytest.mark.parametrize("is_learned", [False, True])
def test_unexpected_prefill_is_counted(is_learned: bool) -> None:
    """Whether the headers come before the scrape or after it: all other blocks age by what was
    really processed, and the chain is as young as possible."""
    index = PrefixIndex()
    for first in (0, 100):
        index.learn(A, tuple(range(first, first + 10)), 1e9)
    chain = tuple(range(12))
    memory = index.memory(A)
    assert memory is not None and memory.age(100) == 0
    segments = memory.segments(chain, memory.depth(chain))
    if is_learned:
        index.learn(A, chain, 1e9)
    memory.correct(chain, segments, 3.0, is_learned=is_learned)
    if not is_learned:
        index.learn(A, chain, 1e9)
    assert (memory.age(100), memory.age(0), memory.age(11)) == (9, 0, 0)


@pytest.mark.parametrize("kept_prompts", [1, 3, 1000])
def test_the_expectation_converges(kept_prompts: int) -> None:
    """Ten prompts again and again, to servers that cache one of them, three, or all."""
    random = Random(1)
    fleet = SteeredFleet()
    addresses = [fleet.add(1, context_tokens=16_384) for _ in range(2)]
    caches: dict[Address, list[int]] = {address: [] for address in addresses}
    were_right = []
    for number in range(300):
        prompt = random.randrange(10)
        blocks = chain_of((None, None), chr(65 + prompt) * 4000)
        lease = fleet.pick(prompt_blocks=blocks, prompt_tokens=1000, max_tokens=40)
        run = fleet.dispatcher.state.in_flight.get(lease)
        cache = caches[lease.address]
        assert run is not None
        were_right.append((run.cached_tokens > 500) is (prompt in cache))
        cached = 999 if prompt in cache else 0
        caches[lease.address] = [*(one for one in cache if one != prompt), prompt][-kept_prompts:]
        fleet.now += 1.0
        reading = SlotReading(
            task_id=number,
            prompt_tokens=1005,
            cached_tokens=cached,
            processed_tokens=1000 - cached,
            decoded_tokens=5,
            remaining_tokens=35,
        )
        if random.random() < 0.7:  # not every one is seen
            fleet.scrape(lease.address, slots=1, busy_slots=1, slot_readings=(reading,))
        fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
        fleet.now += 0.2
        fleet.finish(lease)
        fleet.scrape(lease.address, slots=1, busy_slots=0)
    assert sum(were_right[200:]) >= 88


CHAIN = tuple(range(1000, 1040))


def asked(**more: object) -> dict[str, object]:
    return {"prompt_blocks": CHAIN, "prompt_tokens": 2600, **more}


def test_a_conversation_returns_to_its_endpoint() -> None:
    """The endpoint that has processed it before is picked again."""
    fleet = SteeredFleet()
    for _ in range(5):
        fleet.add(4, context_tokens=8192)
    lease = fleet.pick(**asked())
    fleet.dispatcher.responded(lease, fleet.now + 1.4)
    fleet.finish(lease)
    for _ in range(3):
        fleet.now += 10
        again = fleet.pick(**asked())
        assert again.address == lease.address
        fleet.finish(again)


def converse(fleet: SteeredFleet, name: str) -> tuple[Address, float]:
    """One turn of a conversation under that name; the endpoint, and the expected cached tokens
    there."""
    names = fleet.dispatcher.state.resolver.names
    blocks = chain_of(names.cache_key_seed(name, None, frozenset()), "row " * 2500)
    lease = fleet.pick(model=name, prompt_blocks=blocks, prompt_tokens=2500)
    run = fleet.dispatcher.state.in_flight.get(lease)
    assert run is not None
    fleet.dispatcher.responded(lease, fleet.now + 1.4)
    fleet.finish(lease)
    fleet.now += 10.0
    return lease.address, run.cached_tokens


@pytest.mark.parametrize("is_router", [False, True])
@pytest.mark.parametrize("names", [("tiny", "alias"), ("tiny", "mine"), ("alias", "both")])
def test_a_conversation_uses_its_cache_under_another_name_of_its_model(
    names: tuple[str, str], is_router: bool
) -> None:
    """The model's own, an alias of its servers, and names of the settings for it."""
    fleet = SteeredFleet(splits={"mine": {"tiny": 1.0}, "both": {"tiny": 1.0, "alias": 1.0}})
    readings = [ModelReading(name="tiny", aliases=("alias",), slots=4 if is_router else None)]
    if is_router:
        readings.append(ModelReading(name="large", is_loaded=False))
    for _ in range(5):
        fleet.add(4, models=readings, context_tokens=8192)
    target, cached_tokens = converse(fleet, names[0])
    assert cached_tokens == 0.0
    for name in reversed(names):
        address, cached_tokens = converse(fleet, name)
        assert (address, cached_tokens > 2000) == (target, True)


def test_two_models_of_a_router_share_nothing() -> None:
    """Though another server has both names for one of them."""
    fleet = SteeredFleet()
    both = tuple(ModelReading(name=name, slots=2, busy_slots=0) for name in ("tiny", "small"))
    fleet.add(4, models=both, context_tokens=8192)
    plain = fleet.join()
    reported = {"slots": 1, "busy_slots": 1}
    fleet.scrape(plain, models=[ModelReading(name="tiny", aliases=("small",))], **reported)
    converse(fleet, "tiny")
    assert converse(fleet, "tiny")[1] > 2000
    assert converse(fleet, "small")[1] == 0.0


def test_a_split_shares_nothing_between_its_models() -> None:
    """The drawn model decides which cache is used."""
    fleet = SteeredFleet(splits={"both": {"tiny": 1.0, "small": 1.0}})
    servers = {name: fleet.add(4, models=[name], context_tokens=8192) for name in ("tiny", "small")}
    known: set[Address] = set()
    for _ in range(20):
        address, cached_tokens = converse(fleet, "both")
        assert (cached_tokens > 2000) is (address in known)
        known.add(address)
    assert known == set(servers.values())
    assert converse(fleet, "tiny")[1] > 2000


def test_a_restarted_or_removed_server_has_no_expected_cache() -> None:
    fleet = SteeredFleet()
    address = fleet.add(4, context_tokens=8192, instance="one")
    prefixes = fleet.dispatcher.state.prefix_caches
    fleet.scrape(address, slots=4, busy_slots=0, instance="one")
    converse(fleet, "tiny")
    assert converse(fleet, "tiny")[1] > 2000
    fleet.scrape(address, slots=4, busy_slots=0, instance="two")
    assert prefixes.memory(address) is None
    converse(fleet, "tiny")
    assert prefixes.memory(address) is not None
    fleet.dispatcher.set_members("test", [], fleet.now)
    assert prefixes.memory(address) is None and len(prefixes) == 0


@pytest.mark.parametrize(("context_tokens", "blocks"), [(8192, 4 * 128), (None, 4 * 64)])
def test_the_first_assumed_capacity_is_that_of_the_slots(
    context_tokens: int | None, blocks: int
) -> None:
    fleet = SteeredFleet()
    address = fleet.add(4, context_tokens=context_tokens)
    converse(fleet, "tiny")
    memory = fleet.dispatcher.state.prefix_caches.memory(address)
    assert memory is not None and memory.capacity == blocks


def test_each_request_is_one_sample() -> None:
    """However often it is scraped."""
    fleet = SteeredFleet()
    address = fleet.add(1, context_tokens=8192)
    converse(fleet, "tiny")
    memory = fleet.dispatcher.state.prefix_caches.memory(address)
    names = fleet.dispatcher.state.resolver.names
    blocks = chain_of(names.cache_key_seed("tiny", None, frozenset()), "row " * 2500)
    assert memory is not None
    memory.capacity = 100.0
    memory.read += 50
    fleet.pick(model="tiny", prompt_blocks=blocks, prompt_tokens=2500)
    beliefs = []
    for decoded in (1, 5, 9):
        fleet.now += 1.0
        reading = SlotReading(
            task_id=1,
            prompt_tokens=2500 + decoded,
            cached_tokens=0,
            processed_tokens=2500,
            decoded_tokens=decoded,
        )
        fleet.scrape(address, slots=1, busy_slots=1, slot_readings=(reading,))
        beliefs.append(memory.capacity)
    assert beliefs[0] < 100.0 and len(set(beliefs)) == 1


def test_a_fallback_is_not_measured_by_the_expectation_for_another() -> None:
    """Three conversations of a dead server have long prompts at another one, which has other
    conversations: it rightly has nothing of theirs in its cache, and its assumed capacity does not
    change."""
    fleet = SteeredFleet()
    target, other = fleet.add(4, context_tokens=8192), fleet.add(4, context_tokens=8192)
    chats = [tuple(range(1000 * number, 1000 * number + 40)) for number in range(6)]
    for number, chat in enumerate(chats):
        allowed = frozenset({target if number < 3 else other})
        lease = fleet.pick(**asked(prompt_blocks=chat), allowed=allowed)
        fleet.dispatcher.responded(lease, fleet.now + 1.4)
        fleet.finish(lease)
    memory = fleet.dispatcher.state.prefix_caches.memory(other)
    assert memory is not None
    before = memory.capacity
    for number, chat in enumerate(chats[:3]):
        fleet.now += 10.0
        lease = fleet.pick(**asked(prompt_blocks=chat), allowed=frozenset({target}))
        run = fleet.dispatcher.state.in_flight.get(lease)
        assert run is not None and run.cached_tokens > 2000
        fleet.dispatcher.responded(lease, fleet.now, served=other)
        assert run.uncached_tokens == 2600
        fleet.now += 1.0
        reading = SlotReading(
            task_id=number,
            prompt_tokens=2605,
            cached_tokens=0,
            processed_tokens=2600,
            decoded_tokens=5,
        )
        fleet.scrape(other, slots=4, busy_slots=1, slot_readings=(reading,))
        fleet.finish(lease)
    assert memory.capacity == before


def test_repeated_prompts_are_remembered_longer() -> None:
    index = PrefixIndex()
    often, seldom = (1, 2), (3, 4)
    index.learn(A, often, 1e9)
    index.learn(A, seldom, 1e9)
    for number in range(MAX_BLOCKS_EACH):
        index.learn(A, (10 + number,), 1e9)
        if number % 100 == 0:
            index.learn(A, often, 1e9)
    memory = index.memory(A)
    assert memory is not None
    assert (memory.depth(often), memory.depth(seldom)) == (2, 0)


def test_the_memory_of_a_large_fleet_is_bounded_as_a_whole() -> None:
    index = PrefixIndex()
    servers = 2 * MAX_BLOCKS_ALL // MAX_BLOCKS_EACH
    for port in range(servers):
        index.learn(Address("10.0.0.1", port), (port,), 1e9)
    index.learn(A, tuple(range(10**6, 10**6 + MAX_BLOCKS_EACH)), 1e9)
    memory = index.memory(A)
    assert memory is not None
    assert len(memory.blocks) == MAX_BLOCKS_ALL // (servers + 1)


def test_embeddings_leave_no_trace() -> None:
    fleet = SteeredFleet()
    fleet.add(2)
    lease = fleet.pick(kind=Kind.EMBEDDING, prompt_blocks=CHAIN, prompt_tokens=2600)
    fleet.dispatcher.responded(lease, fleet.now)
    assert fleet.dispatcher.state.prefix_caches.memory(lease.address) is None


def test_a_session_is_a_hint() -> None:
    """Without a prompt that was read, the session's last endpoint is preferred."""
    fleet = SteeredFleet()
    for _ in range(5):
        fleet.add(4)
    lease = fleet.pick(session_id="s")
    fleet.dispatcher.responded(lease, fleet.now)
    fleet.finish(lease)
    for _ in range(5):
        fleet.now += 30.0
        again = fleet.pick(session_id="s")
        assert again.address == lease.address
        fleet.finish(again)
