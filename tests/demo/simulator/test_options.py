from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from extproc.demo.simulator.options import Distribution, SimulatorOptions


@pytest.mark.parametrize("distribution", list(Distribution))
def test_every_distribution_keeps_the_mean(distribution: Distribution) -> None:
    options = SimulatorOptions(service_time_s=2.0, distribution=distribution)
    source = random.Random(1)
    drawn = [options.draw_answer_s(10, source) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(2.0, rel=0.05)
    assert min(drawn) >= 0


def test_without_a_service_time_the_length_decides() -> None:
    options = SimulatorOptions(tokens_per_second=10.0)
    assert options.draw_answer_s(40, random.Random()) == 4.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"slots": 10**6},
        {"context_tokens": 0},
        {"tokens_per_second": 0.0},
        {"service_time_s": -1.0},
        {"load_s": -1.0},
    ],
)
def test_what_cannot_be_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SimulatorOptions(**wrong)


def test_no_service_time_at_all_can_be_asked_for() -> None:
    options = SimulatorOptions(service_time_s=0.0, distribution=Distribution.EXPONENTIAL)
    assert options.draw_answer_s(10, random.Random()) == 0.0
