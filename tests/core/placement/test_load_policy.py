"""Claims about extproc/core/placement/load_policy.py."""

from __future__ import annotations

from itertools import pairwise

from extproc.core.placement.load_policy import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_FAILURES,
    retry_pause_s,
)


def test_each_pause_is_twice_the_one_before_up_to_a_limit() -> None:
    pauses = [retry_pause_s(failures) for failures in range(1, 2 * MAX_FAILURES)]
    assert pauses[0] == FIRST_PAUSE_S
    for before, after in pairwise(pauses):
        assert after == min(LONGEST_PAUSE_S, 2 * before)
    assert pauses[MAX_FAILURES - 2] < LONGEST_PAUSE_S == pauses[-1]
