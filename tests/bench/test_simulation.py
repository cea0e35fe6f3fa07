"""The claims of the simulator, on shorter traces: deterministic, with the real core inside.

`make nightly` plays each with three seeds, and sizes as long as `make bench` and at the higher load
too: a target that chance alone meets is not met.
"""

from __future__ import annotations

from functools import partial

import pytest

from bench.result import Row
from bench.simulation import SCENARIOS
from bench.simulation.sizes import LOADS, sizes
from tests.long_run import IS_LONG_RUN

SCALES = {
    "uneven": 0.2,
    "chats": 0.5,
    "caches": 0.6,
    "hot": 0.5,
    "agents": 0.5,
    "foresight": 0.5,
    "failures": 0.8,
    "overload": 0.4,
    "tenants": 0.4,
    "sizes": 1.0 if IS_LONG_RUN else 0.2,
    "shared-context": 1.0 if IS_LONG_RUN else 0.15,
}

BY_CHANCE = {"requests with a lie": 0.18, "other tenants": 0.1, "coxswain's time": 0.1}
"""Twice the standard deviation of these ratios over six runs of 6,000 requests, the short form; the
time of 900 requests of which nothing was known before is longer than that of many."""


@pytest.mark.timeout(1200 if IS_LONG_RUN else 400)
@pytest.mark.parametrize("seed", [1, 2, 3] if IS_LONG_RUN else [1])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_target_is_met(name: str, seed: int) -> None:
    play = SCENARIOS[name]
    if name == "sizes" and not IS_LONG_RUN:
        play = partial(sizes, loads=LOADS[:1])
    section = play(SCALES[name], seed)
    missed = [f"{row.what}: {row.value} ({row.target})" for row in section.rows if not is_met(row)]
    assert not missed


def is_met(row: Row) -> bool:
    if row.is_met is not False or IS_LONG_RUN:
        return row.is_met is not False
    slack = sum(slack for what, slack in BY_CHANCE.items() if what in row.what)
    return abs(float(row.value) - float(row.target.split()[1])) <= slack if slack else False
