"""Claims about extproc/core/scaling/damping.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.scaling.damping import Damping

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
