"""Claims about extproc/core/scaling/wanted.py."""

from __future__ import annotations

from dataclasses import replace
from math import factorial, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.scaling.wanted import (
    MANY_SLOTS,
    MEANINGS,
    Cause,
    Damping,
    ModelTraffic,
    ScaleOptions,
    ServerBounds,
    recommend,
    slots_for_wait,
)

OPTIONS = ScaleOptions(target_wait_s=5.0, idle_s=60.0)
ANY = ServerBounds(max_servers=1_000_000)


def servers(traffic: ModelTraffic, bounds: ServerBounds = ANY, target_wait_s: float = 5.0) -> int:
    return recommend(traffic, bounds, OPTIONS, target_wait_s).servers


def mean_wait_s(slots: int, offered: float, service_s: float) -> float:
    """Erlang's C as in textbooks, with factorials."""
    head = sum(offered**k / factorial(k) for k in range(slots))
    last = offered**slots / factorial(slots) * slots / (slots - offered)
    return last / (head + last) * service_s / (slots - offered)


@given(offered=st.floats(0.01, 60), service_s=st.floats(0.1, 60), target_s=st.floats(0.1, 60))
def test_the_slots_are_the_fewest_that_keep_the_wait(
    offered: float, service_s: float, target_s: float
) -> None:
    slots = slots_for_wait(offered, service_s, target_s)
    assert slots > offered and mean_wait_s(slots, offered, service_s) <= target_s * (1 + 1e-6)
    if slots - 1 > offered:
        assert mean_wait_s(slots - 1, offered, service_s) >= target_s * (1 - 1e-6)


def test_without_load_no_slot_is_needed_and_a_huge_one_is_quick() -> None:
    assert slots_for_wait(0.0, 1.0, 5.0) == 0
    assert MANY_SLOTS < slots_for_wait(1e6, 1.0, 5.0) < 1.01e6


TRAFFIC = st.builds(
    ModelTraffic,
    queued_slots=st.integers(0, 500),
    busy_slots=st.integers(0, 500),
    arrivals_per_s=st.floats(0, 20),
    service_s=st.none() | st.floats(0.01, 60),
    slots=st.none() | st.floats(1, 32),
    servers=st.integers(0, 50),
    unasked_s=st.floats(0, 1000) | st.just(inf),
)


@given(TRAFFIC)
def test_none_is_wanted_exactly_while_nobody_asks(traffic: ModelTraffic) -> None:
    """At least one while anything waits or runs; none once nothing was asked for `idle_s`."""
    is_idle = traffic.queued_slots == traffic.busy_slots == 0 and traffic.unasked_s >= 60.0
    assert (servers(traffic) == 0) == is_idle


@given(TRAFFIC, st.integers(0, 5), st.integers(5, 9))
def test_bounds_hold(traffic: ModelTraffic, least: int, most: int) -> None:
    found = recommend(traffic, ServerBounds(min_servers=least, max_servers=most), OPTIONS, 5.0)
    assert least <= found.servers <= most
    assert (found.cause is Cause.BOUND) == (servers(traffic) != found.servers)


@given(TRAFFIC, st.integers(0, 100), st.floats(0, 5), st.floats(0, 10))
def test_more_to_do_never_needs_fewer(
    traffic: ModelTraffic, queued: int, arrivals: float, slots: float
) -> None:
    """More queued, more arrivals, a shorter target, or smaller servers."""
    before = servers(traffic)
    assert servers(replace(traffic, queued_slots=traffic.queued_slots + queued)) >= before
    assert servers(replace(traffic, arrivals_per_s=traffic.arrivals_per_s + arrivals)) >= before
    assert servers(traffic, target_wait_s=2.0) >= before
    if traffic.slots is not None:
        assert servers(replace(traffic, slots=traffic.slots + slots)) <= before


def test_what_is_not_known_is_not_guessed() -> None:
    """One server teaches its slots and its speed; none of those that serve is given up."""
    unknown = ModelTraffic(queued_slots=50)
    assert servers(unknown) == 1
    assert servers(replace(unknown, slots=4.0, servers=3)) == 3
    assert recommend(unknown, ANY, OPTIONS, 5.0).cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("traffic", "wanted", "cause"),
    [
        # 2 a second for 4 s: 8 slots are busy, 10 keep the wait under 5 s.
        (ModelTraffic(arrivals_per_s=2.0, service_s=4.0, slots=4.0, unasked_s=0.0), 3, Cause.LOAD),
        # 100 queued requests of 4 s: 13.3 slots work them off within 30 s.
        (ModelTraffic(queued_slots=100, service_s=4.0, slots=4.0), 4, Cause.QUEUE),
        # At 6 a second, 30 queued requests are a wait of 5 s: as many as are meant to wait.
        (
            ModelTraffic(queued_slots=30, arrivals_per_s=6.0, service_s=4.0, slots=4.0),
            7,
            Cause.LOAD,
        ),
        # 3 queued requests of 60 s: more than 3 slots could not be used.
        (ModelTraffic(queued_slots=3, service_s=60.0, slots=1.0), 3, Cause.QUEUE),
    ],
)
def test_examples(traffic: ModelTraffic, wanted: int, cause: Cause) -> None:
    assert recommend(traffic, ANY, OPTIONS, 5.0) == (wanted, cause)


def test_each_cause_has_words() -> None:
    assert set(MEANINGS) == set(Cause)


HELD_S = 60.0
STEPS = st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(0, 20)), max_size=200)


@given(STEPS)
def test_it_is_the_highest_of_the_last_while(steps: list[tuple[float, int]]) -> None:
    """Since the last 0, which counts at once."""
    damping, now, said = Damping(), 0.0, []
    for passed_s, servers in steps:
        now += passed_s
        said.append((now, servers))
        since = max((at for at, one in said if one == 0), default=-1.0)
        recent = [
            one for at, one in said if at >= now - HELD_S and at >= since and (one or at == now)
        ]
        expected = 0 if servers == 0 else max(recent)
        if since in [at for at, one in said if one] and servers:
            continue  # a 0 and a number at the same moment: their order decides
        assert damping.settle(servers, HELD_S, now) == expected


@given(STEPS)
def test_it_comes_down_only_after_the_while(steps: list[tuple[float, int]]) -> None:
    """After a number was needed, a lower one above 0 comes `HELD_S` later at the earliest."""
    damping, now = Damping(), 0.0
    needed: list[tuple[float, int]] = []
    for passed_s, servers in steps:
        now += passed_s
        found = damping.settle(servers, HELD_S, now)
        assert found >= servers
        if servers == 0:
            needed.clear()
            continue
        needed.append((now, servers))
        assert all(found >= one for at, one in needed if at >= now - HELD_S)


def test_it_stays_small() -> None:
    """However often it is called."""
    damping = Damping()
    for step in range(10_000):
        damping.settle(20 - step % 20, 1e9, float(step))
    assert len(damping._recent) <= 20
