"""Claims about extproc/core/slots/token_pool.py."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.prediction.answer_lengths import LengthDistribution
from extproc.core.slots.token_demand import UNKNOWN, TokenClaim, TokenDemand
from extproc.core.slots.token_pool import (
    RISK,
    Combinations,
    TokenPool,
    chance_of_more,
    hardly_overflows,
)


def bounded(prompt: float, answer: float) -> TokenDemand:
    return TokenDemand(prompt, answer)


def pool_of(*demands: TokenDemand, capacity: int = 1024, slots: int = 4) -> TokenPool:
    pool = TokenPool(capacity, slots)
    for number, demand in enumerate(demands):
        pool.add(number, demand)
    return pool


def short_answers(tokens: float = 20.0, count: int = 900) -> LengthDistribution:
    lengths = LengthDistribution()
    for _ in range(count):
        lengths.add(tokens, is_complete=True)
    return lengths


def test_what_surely_fits_is_admitted() -> None:
    """Three bounded requests of 320 tokens fit 1,024 with its margin, a fourth does not."""
    pool = pool_of(*[bounded(200, 120)] * 2)
    assert pool.risk(bounded(200, 120)) == 0.0
    pool.add(2, bounded(200, 120))
    assert not pool.admits(bounded(200, 120))
    pool.remove(0)
    assert pool.admits(bounded(200, 120)) and len(pool.claims) == 2


def test_the_peak_counts_and_not_the_sum_of_peaks() -> None:
    """A request of which ten tokens are left is gone before the others need its room."""
    pool = pool_of(bounded(400, 100), capacity=880)
    young = bounded(300, 300)
    assert not pool.admits(young)  # 500 + 400 when the first ends
    claim = pool.claims[0]
    claim.seen(400, 90, 880)
    assert pool.admits(young)  # 500 + 310, then 600


def test_a_request_alone_is_always_admitted() -> None:
    """It is cut off where the context ends; that is no matter of others."""
    assert pool_of().admits(bounded(5000, 5000)) and pool_of().admits(UNKNOWN)
    assert not pool_of(bounded(1, 1)).admits(UNKNOWN)


def test_unknown_answers_wait_for_each_other() -> None:
    """As long as nothing is known of lengths, each may take all of the context."""
    pool = pool_of(TokenDemand(50, 1e9))
    assert not pool.admits(TokenDemand(50, 1e9))
    assert pool.admits(TokenDemand(50, 10))  # it is over long before


def test_what_was_generated_since_a_scrape_takes_room() -> None:
    """Of four answers one is long. One that still runs four seconds after it began is that, and has
    400 tokens by now: beside it there is no room for 600 more, although no scrape has seen it."""
    lengths = short_answers(count=300)
    for _ in range(100):
        lengths.add(900.0, is_complete=True)
    pool = pool_of(TokenDemand(100, 2000, lengths, begins_at=10.0), capacity=1400)
    pool.token_s = 0.01
    assert pool.admits(TokenDemand(100, 500, begins_at=10.0))
    assert not pool.admits(TokenDemand(100, 500, begins_at=14.0))
    assert pool.held_tokens == 500
    pool.claims[0].seen(100, 40, 1400)
    pool.claims[0].seen_at = 13.9
    assert pool.admits(TokenDemand(100, 500, begins_at=14.0))


def test_known_answers_share_the_context() -> None:
    """Of short answers four fit, although each might become as long as the context."""
    demand = TokenDemand(100, 1e9, short_answers())
    pool = pool_of(demand, demand, demand)
    assert pool.admits(demand)
    long_prompt = TokenDemand(850, 1e9, short_answers())
    assert not pool.admits(long_prompt)


def test_an_answer_that_outlives_the_others_is_expected_to_go_on() -> None:
    """Nine of ten answers have 20 tokens, one has 700. Those that are longer than 100 are of the
    long ones: two of them do not fit, although two new ones do."""
    lengths = LengthDistribution()
    for number in range(2000):
        lengths.add(700.0 if number % 10 == 0 else 20.0, is_complete=True)
    demand = TokenDemand(100, 1e9, lengths)
    pool = pool_of(demand, capacity=1400)
    fresh = pool.risk(demand)
    claim = pool.claims[0]
    claim.seen(100, 150, 1400)
    assert pool.risk(TokenDemand(100, 700, lengths)) > 10 * RISK
    assert fresh > RISK  # one of a hundred pairs is long


def test_foreign_requests_take_room_and_are_expected_again() -> None:
    """What others hold counts, and for some minutes what they have held."""
    pool = pool_of(bounded(100, 50))
    request = bounded(400, 50)
    assert pool.admits(request)
    pool.saw_foreign((TokenClaim(bounded(500, 100), 1024),), 10.0)
    assert pool.foreign_tokens == 500 and pool.held_tokens == 600
    assert not pool.admits(request)
    pool.saw_foreign((), 20.0)
    assert not pool.admits(request)
    pool.saw_foreign((), 400.0)
    assert pool.admits(request)


def test_foreign_requests_starve_nobody() -> None:
    """With only foreign requests, a request waits for room for its prompt alone: what they will
    need is not ours to know, and they may never end."""
    pool = pool_of()
    pool.saw_foreign((TokenClaim(bounded(500, 500), 1024),), 10.0)
    assert pool.admits(bounded(500, 500)) and pool.could_admit(bounded(500, 500))
    assert not pool.admits(bounded(600, 10)) and not pool.could_admit(bounded(600, 10))
    pool.restarted()
    assert pool.admits(bounded(600, 10)) and pool.could_admit(UNKNOWN)


def test_an_overflow_increases_the_margin_for_a_while() -> None:
    """It shrinks with each request that ends."""
    pool = pool_of(bounded(500, 100))
    before = pool.margin_tokens
    request = bounded(300, 50)
    assert pool.admits(request)
    for _ in range(2):
        pool.overflowed()
    assert pool.margin_tokens == pytest.approx(before + 128)
    assert not pool.admits(request)
    for _ in range(2000):
        pool.remove(99)
    assert pool.margin_tokens == pytest.approx(before, abs=5)
    assert pool.admits(request)
    for _ in range(30):
        pool.overflowed()
    assert pool.margin_tokens == 512


def test_the_numbers_for_people() -> None:
    """Held is what is there now, reserved the peak that is likely, free the rest of the room."""
    pool = pool_of(bounded(200, 100), TokenDemand(100, 1e9, short_answers()))
    assert pool.held_tokens == 300
    assert 340 <= pool.reserved_tokens <= 360  # at the end of the short one
    assert pool.free_tokens == pytest.approx(1024 - pool.margin_tokens - pool.reserved_tokens)
    assert pool_of(UNKNOWN, UNKNOWN).reserved_tokens == 1024
    assert pool_of(UNKNOWN, UNKNOWN).free_tokens == 0.0
    assert pool_of(TokenDemand(100, 0.0)).reserved_tokens == 100
    assert pool_of().reserved_tokens == 0.0


def test_it_belongs_to_its_leases() -> None:
    pool = pool_of(bounded(1, 1), bounded(1, 1))
    assert pool.is_of([0, 1]) and not pool.is_of([0])
    pool.clear()
    assert pool.is_of([]) and pool.claims == {}
    pool.resize(2048, 8)
    assert pool.capacity_tokens == 2048 and pool.margin_tokens == 2048 / 32


@given(
    terms=st.lists(
        st.tuples(st.integers(1, 100), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])),
        min_size=1,
        max_size=6,
    ),
    room=st.integers(0, 400),
)
def test_the_chance_of_a_sum_is_that_of_all_cases(
    terms: list[tuple[int, float]], room: int
) -> None:
    exact = 0.0
    for size in range(len(terms) + 1):
        for chosen in combinations(range(len(terms)), size):
            chance = 1.0
            for index, (_, each) in enumerate(terms):
                chance *= each if index in chosen else 1.0 - each
            if sum(terms[index][0] for index in chosen) > room:
                exact += chance
    ordered = sorted(((float(value), chance) for value, chance in terms), reverse=True)
    most = sum(value for value, _ in ordered)
    assert chance_of_more(ordered, most, float(room)) == pytest.approx(exact, abs=1e-9)


def test_the_chance_of_many_terms_is_never_too_little() -> None:
    """Sixteen terms are not all kept apart, and cost a few times what is really there at most."""
    random = Random(3)
    for _ in range(20):
        terms = sorted(((random.uniform(50, 400), 0.3) for _ in range(16)), reverse=True)
        room = sum(value for value, _ in terms) * 0.6
        found = chance_of_more(terms, sum(value for value, _ in terms), room)
        drawn = sum(
            sum(value for value, chance in terms if random.random() < chance) > room
            for _ in range(4000)
        )
        assert drawn / 4000 - 0.01 <= found <= 3 * drawn / 4000 + 0.02


def test_the_added_chance_is_that_of_drawn_lengths() -> None:
    """Three requests and a new one overflow about as often as was computed, and not more often;
    what those three would do without it is not counted."""
    random = Random(7)
    lengths = LengthDistribution()
    for _ in range(900):
        lengths.add(random.expovariate(1 / 100), is_complete=True)
    demand = TokenDemand(150, 1e9, lengths)
    for room in (900.0, 1100.0):
        running = [TokenClaim(demand, 1e9) for _ in range(3)]
        found = Combinations(running).added_chance(TokenClaim(demand, 1e9), room)
        drawn = 0
        for _ in range(20_000):
            answers = [random.expovariate(1 / 100) for _ in range(4)]
            drawn += overflows(answers, room) and not overflows(answers[:3], room)
        assert drawn / 20_000 <= found <= 3 * drawn / 20_000


@pytest.mark.parametrize("count", [2, 3, 6, 14])
def test_what_hardly_overflows_seldom_did(count: int) -> None:
    """In the smallest room of which it is said, drawn lengths exceed it no more often; some of the
    answers have come some way."""
    random = Random(count)
    lengths = LengthDistribution()
    for _ in range(900):
        lengths.add(random.lognormvariate(5.0, 0.8), is_complete=True)
    so_far = [0.0 if index % 2 else 100.0 for index in range(count)]
    claims = [TokenClaim(TokenDemand(150, 1e9, lengths), 1e9, decoded) for decoded in so_far]
    rooms = [250.0 * count + 50.0 * step for step in range(1000)]
    room = next(room for room in rooms if hardly_overflows(claims, room, 0.2))
    assert room > rooms[0] and hardly_overflows(claims, 2 * room, 0.2)
    drawn = 0
    for _ in range(4000):
        held = 0.0
        for decoded in so_far:
            answer = 0.0
            while answer <= decoded:
                answer = random.lognormvariate(5.0, 0.8)
            held += 150 + answer
        drawn += held > room
    assert drawn / 4000 <= 0.2


def test_what_is_bounded_hardly_overflows_if_it_fits() -> None:
    """Without a distribution each takes all that it may, and alone what it needs."""
    claims = [TokenClaim(bounded(100, 50), 1e9), TokenClaim(TokenDemand(100, 50, None, 2), 1e9)]
    assert hardly_overflows(claims, 350.0, RISK) and not hardly_overflows(claims, 349.0, RISK)
    assert hardly_overflows(claims[:1], 150.0, RISK)


def overflows(answers: list[float], room: float) -> bool:
    return any(sum(150 + end for one in answers if one >= end) > room for end in answers)


def test_a_prompt_that_may_be_long_counts_by_its_chance() -> None:
    """One prompt of a hundred thousand that does not fit is a risk that may be taken, one of a
    hundred is not; the least does not decide."""
    pool = pool_of(bounded(500, 100))
    for chance, is_admitted in ((1e-5, True), (0.01, False)):
        prompts = ((600.0, chance), (200.0, 1.0 - chance))
        demand = TokenDemand(600, 50, prompts=prompts)
        assert pool.admits(demand) is is_admitted
    assert pool.risk(TokenDemand(600, 50)) == 1.0
