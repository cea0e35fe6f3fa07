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


def place(
    picker: Ranking,
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
    picker.update(endpoint, endpoint_slots)
    return endpoint.address


@pytest.fixture
def picker() -> Ranking:
    return Ranking(Random(1))


def test_the_largest_share_wins(picker: Ranking) -> None:
    """1 of 2 goes before 3 of 8, which goes before 1 of 4."""
    third, second, first = place(picker, 1, 1, 4), place(picker, 2, 3, 8), place(picker, 3, 1, 2)
    assert picker.best(3) == [first, second, third]
    assert picker.best(2) == [first, second]
    assert picker.best_for(1) == first


def test_a_first_choice_with_a_slot_precedes_a_backup(picker: Ranking) -> None:
    """For any number of free slots; but a backup with a slot precedes a full first choice."""
    asleep = place(picker, 1, 4, 4, health=Health.ASLEEP)
    stale = place(picker, 2, 3, 4, is_fresh=False)
    full = place(picker, 3, 0, 4)
    fresh = place(picker, 4, 1, 8)
    assert picker.best(9) == [fresh, asleep, stale, full]


def test_full_endpoints_are_ranked_by_when_a_slot_is_free(picker: Ranking) -> None:
    """The larger ones first; each request beyond their slots counts against them."""
    small, overfull, large = place(picker, 1, 0, 2), place(picker, 2, -1, 8), place(picker, 3, 0, 8)
    twice_overfull = place(picker, 4, -2, 2)
    free = place(picker, 5, 1, 8)
    assert picker.best(9) == [free, large, overfull, small, twice_overfull]


def test_fallbacks_of_a_multi_slot_request_have_enough_slots(picker: Ranking) -> None:
    """Before those that have a larger share of their slots free, but fewer."""
    few, many, full = place(picker, 1, 2, 2), place(picker, 2, 3, 8), place(picker, 3, 0, 4)
    assert picker.fallbacks(3, 1) == [few, many, full]
    assert picker.fallbacks(3, 3) == [few, many, full], "a smaller server gives it all"
    place(picker, 1, 1, 2)
    assert picker.fallbacks(3, 1) == [few, many, full]
    assert picker.fallbacks(3, 3) == [many, few, full]
    assert picker.fallbacks(1, 3) == [many]


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
    picker: Ranking, health: Health, intent: Intent, slots: int
) -> None:
    """An update removes what was ranked before."""
    place(picker, 1, 4, 4)
    place(picker, 1, slots, slots, health=health, intent=intent)
    assert len(picker) == 0
    assert (picker.best(1), picker.best_for(1)) == ([], None)


def test_an_empty_ranking(picker: Ranking) -> None:
    """It returns no endpoint; to remove an unknown one is no error."""
    picker.remove(address(1))
    assert (picker.best(3), picker.best_for(1), len(picker)) == ([], None, 0)


def test_full_endpoints_are_only_for_requests_without_a_slot(picker: Ranking) -> None:
    """`best` returns them last, `best_for` never."""
    full = place(picker, 1, 0, 4)
    assert picker.best(1) == [full]
    assert picker.best_for(1) is None


def test_a_multi_slot_request_needs_enough_slots(picker: Ranking) -> None:
    """The best endpoint that has them, not the best one; a small server gives all it has."""
    place(picker, 1, 1, 2)
    roomy = place(picker, 2, 3, 8)
    assert picker.best_for(2) == roomy
    assert picker.best_for(4) is None
    small = place(picker, 3, 2, 2)
    assert picker.best_for(4) == small


@pytest.mark.parametrize("weight_slots", [1, 2])
def test_ties_are_broken_at_random(picker: Ranking, weight_slots: int) -> None:
    """Each of the equals gets its share, whatever their sizes are."""
    equals = [place(picker, number, slots // 2, slots) for number, slots in enumerate([4, 4, 8])]
    heavy = Counter(picker.best_for(weight_slots) for _ in range(3000))
    light = Counter(picker.best(1)[0] for _ in range(3000))
    for chosen in (heavy, light):
        assert set(chosen) == set(equals)
        assert all(800 < often < 1200 for often in chosen.values())


def test_no_endpoint_is_returned_twice(picker: Ranking) -> None:
    """Fallbacks are others, also if the random start is the last of its bucket."""
    for number in range(4):
        place(picker, number, 2, 4)
    for _ in range(100):
        assert len(set(picker.best(4))) == 4


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4), st.booleans())),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_against_a_plain_sort(
    placements: list[tuple[int, int, int, bool]], many: int, weight_slots: int
) -> None:
    """After any updates the ranking equals a sort of all endpoints."""
    picker = Ranking(Random(2))
    plain: dict[Address, tuple[bool, bool, float, int, int]] = {}
    for number, free, more, is_fresh in placements:
        slots = free + more
        where = place(picker, number, free, slots, is_fresh=is_fresh)
        plain.pop(where, None)
        if slots:
            plain[where] = (free > 0, is_fresh, free / slots, free, slots)
    ranks = sorted((numbers[:3] for numbers in plain.values()), reverse=True)
    best = picker.best(many)
    assert [plain[where][:3] for where in best] == ranks[:many]
    assert len(set(best)) == len(best)
    fitting = [n[:3] for n in plain.values() if n[0] and can_fit(weight_slots, n[3], n[4])]
    heavy = picker.best_for(weight_slots)
    assert (plain[heavy][:3] if heavy else None) == max(fitting, default=None)
    for where in list(plain):
        picker.remove(where)
    assert (picker._ranks, picker._buckets, len(picker)) == ([], {}, 0)


def test_equals_are_removed_in_any_order(picker: Ranking) -> None:
    """An endpoint that moves into a gap is found at its new index."""
    equals = [place(picker, number, 1, 2) for number in range(5)]
    for gone, left in ((0, 4), (4, 3), (2, 2), (1, 1)):
        picker.remove(equals[gone])
        assert len(picker.best(9)) == len(set(picker.best(9))) == left
        assert equals[gone] not in picker.best(9)
    assert picker.best(9) == [equals[3]]


def test_never_more_than_the_limit(picker: Ranking) -> None:
    """One of the best and two of the next, of which there are many."""
    best = place(picker, 0, 2, 2)
    for number in range(1, 6):
        place(picker, number, 1, 2)
    assert picker.best(3)[0] == best and len(picker.best(3)) == 3
