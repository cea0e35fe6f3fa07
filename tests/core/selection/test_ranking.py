"""Claims about extproc/core/selection/ranking.py."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec, Intent
from extproc.core.fleet.health import Health
from extproc.core.selection.ranking import Ranking
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit


def address(number: int) -> Address:
    return Address("10.0.0.1", 8000 + number)


def update(
    ranking: Ranking,
    number: int,
    free: int,
    slots: int,
    *,
    is_fresh: bool = True,
    health: Health = Health.READY,
    intent: Intent = Intent.ACTIVE,
) -> Address:
    endpoint = Endpoint(EndpointSpec(address=address(number)))
    endpoint.health, endpoint.is_fresh, endpoint.intent = health, is_fresh, intent
    endpoint_slots = EndpointSlots(0.0)
    endpoint_slots.slots, endpoint_slots.foreign_slots = slots, slots - free
    ranking.update(endpoint, endpoint_slots)
    return endpoint.address


@pytest.fixture
def ranking() -> Ranking:
    return Ranking(Random(1))


def test_the_largest_share_wins(ranking: Ranking) -> None:
    """1 of 2 goes before 3 of 8, which goes before 1 of 4."""
    third, second, first = (
        update(ranking, 1, 1, 4),
        update(ranking, 2, 3, 8),
        update(ranking, 3, 1, 2),
    )
    assert ranking.best(3) == [first, second, third]
    assert ranking.best(2) == [first, second]
    assert ranking.best_for(1) == first


def test_a_first_choice_with_a_slot_precedes_a_backup(ranking: Ranking) -> None:
    """For any number of free slots; but a backup with a slot precedes a full first choice."""
    asleep = update(ranking, 1, 4, 4, health=Health.ASLEEP)
    stale = update(ranking, 2, 3, 4, is_fresh=False)
    full = update(ranking, 3, 0, 4)
    fresh = update(ranking, 4, 1, 8)
    assert ranking.best(9) == [fresh, asleep, stale, full]


def test_full_endpoints_are_ranked_by_when_a_slot_is_free(ranking: Ranking) -> None:
    """The larger ones first; each request beyond their slots counts against them."""
    small, overfull, large = (
        update(ranking, 1, 0, 2),
        update(ranking, 2, -1, 8),
        update(ranking, 3, 0, 8),
    )
    twice_overfull = update(ranking, 4, -2, 2)
    free = update(ranking, 5, 1, 8)
    assert ranking.best(9) == [free, large, overfull, small, twice_overfull]


def test_fallbacks_of_a_multi_slot_request_have_enough_slots(ranking: Ranking) -> None:
    """Before those that have a larger share of their slots free, but fewer."""
    few, many, full = update(ranking, 1, 2, 2), update(ranking, 2, 3, 8), update(ranking, 3, 0, 4)
    assert ranking.fallbacks(3, 1) == [few, many, full]
    assert ranking.fallbacks(3, 3) == [few, many, full], "a smaller server gives it all"
    update(ranking, 1, 1, 2)
    assert ranking.fallbacks(3, 1) == [few, many, full]
    assert ranking.fallbacks(3, 3) == [many, few, full]
    assert ranking.fallbacks(1, 3) == [many]


@pytest.mark.parametrize(
    ("health", "intent", "slots"),
    [
        (Health.DOWN, Intent.ACTIVE, 4),
        (Health.LOADING, Intent.ACTIVE, 4),
        (Health.READY, Intent.DRAINING, 4),
        (Health.READY, Intent.DISABLED, 4),
        (Health.READY, Intent.ACTIVE, 0),
    ],
)
def test_an_endpoint_that_is_not_pickable_is_removed(
    ranking: Ranking, health: Health, intent: Intent, slots: int
) -> None:
    """An update removes what was ranked before."""
    update(ranking, 1, 4, 4)
    update(ranking, 1, slots, slots, health=health, intent=intent)
    assert len(ranking) == 0
    assert (ranking.best(1), ranking.best_for(1)) == ([], None)


def test_an_empty_ranking(ranking: Ranking) -> None:
    """It returns no endpoint; to remove an unknown one is no error."""
    ranking.remove(address(1))
    assert (ranking.best(3), ranking.best_for(1), len(ranking)) == ([], None, 0)


def test_full_endpoints_are_only_for_requests_without_a_slot(ranking: Ranking) -> None:
    """`best` returns them last, `best_for` never."""
    full = update(ranking, 1, 0, 4)
    assert ranking.best(1) == [full]
    assert ranking.best_for(1) is None


def test_a_multi_slot_request_needs_enough_slots(ranking: Ranking) -> None:
    """The best endpoint that has them, not the best one; a small server gives all it has."""
    update(ranking, 1, 1, 2)
    roomy = update(ranking, 2, 3, 8)
    assert ranking.best_for(2) == roomy
    assert ranking.best_for(4) is None
    small = update(ranking, 3, 2, 2)
    assert ranking.best_for(4) == small


@pytest.mark.parametrize("weight_slots", [1, 2])
def test_ties_are_broken_at_random(ranking: Ranking, weight_slots: int) -> None:
    """Each of the equals gets its share, whatever their sizes are."""
    equals = [update(ranking, number, slots // 2, slots) for number, slots in enumerate([4, 4, 8])]
    heavy = Counter(ranking.best_for(weight_slots) for _ in range(3000))
    light = Counter(ranking.best(1)[0] for _ in range(3000))
    for chosen in (heavy, light):
        assert set(chosen) == set(equals)
        assert all(800 < often < 1200 for often in chosen.values())


def test_no_endpoint_is_returned_twice(ranking: Ranking) -> None:
    """Fallbacks are others, also if the random start is the last of its bucket."""
    for number in range(4):
        update(ranking, number, 2, 4)
    for _ in range(100):
        assert len(set(ranking.best(4))) == 4


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4), st.booleans())),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_against_a_plain_sort(
    placements: list[tuple[int, int, int, bool]], many: int, weight_slots: int
) -> None:
    """After any updates the ranking equals a sort of all endpoints."""
    ranking = Ranking(Random(2))
    plain: dict[Address, tuple[bool, bool, float, int, int]] = {}
    for number, free, more, is_fresh in placements:
        slots = free + more
        where = update(ranking, number, free, slots, is_fresh=is_fresh)
        plain.pop(where, None)
        if slots:
            plain[where] = (free > 0, is_fresh, free / slots, free, slots)
    ranks = sorted((numbers[:3] for numbers in plain.values()), reverse=True)
    best = ranking.best(many)
    assert [plain[where][:3] for where in best] == ranks[:many]
    assert len(set(best)) == len(best)
    fitting = [n[:3] for n in plain.values() if n[0] and can_fit(weight_slots, n[3], n[4])]
    heavy = ranking.best_for(weight_slots)
    assert (plain[heavy][:3] if heavy else None) == max(fitting, default=None)
    for where in list(plain):
        ranking.remove(where)
    assert (ranking._ranks, ranking._buckets, len(ranking)) == ([], {}, 0)


def test_equals_are_removed_in_any_order(ranking: Ranking) -> None:
    """An endpoint that moves into a gap is found at its new index."""
    equals = [update(ranking, number, 1, 2) for number in range(5)]
    for gone, left in ((0, 4), (4, 3), (2, 2), (1, 1)):
        ranking.remove(equals[gone])
        assert len(ranking.best(9)) == len(set(ranking.best(9))) == left
        assert equals[gone] not in ranking.best(9)
    assert ranking.best(9) == [equals[3]]


def test_never_more_than_the_limit(ranking: Ranking) -> None:
    """One of the best and two of the next, of which there are many."""
    best = update(ranking, 0, 2, 2)
    for number in range(1, 6):
        update(ranking, number, 1, 2)
    assert ranking.best(3)[0] == best and len(ranking.best(3)) == 3
