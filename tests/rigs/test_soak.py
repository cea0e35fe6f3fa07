"""Claims about rigs/soak: what it judges, on made-up runs; and a short run over real Envoy."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from bench.result import Row, table
from rigs.soak import __main__ as run
from rigs.soak import audit
from rigs.soak.samples import Sample, flatness, last_third, trend

MIB = 1024 * 1024


def made_up(*, leak_bytes: float = 0.0, slower_ms: float = 0.0, count: int = 300) -> list[Sample]:
    """A run of 300,000 requests with noise: 200 KiB of memory, 3 ms of latency."""
    source = Random(1)
    return [
        Sample(
            at_s=float(step),
            requests=step * 1000,
            picker_bytes=int(110 * MIB + leak_bytes * step * 1000 + source.gauss(0, 200_000)),
            envoy_bytes=60 * MIB,
            served_ms=(60 + slower_ms * step / count + source.gauss(0, 3), 200.0),
            probe_ms=(4 + source.gauss(0, 0.5), 9.0),
        )
        for step in range(1, count + 1)
    ]


def missed(rows: list[Row]) -> list[str]:
    return [row.what for row in rows if row.is_met is False]


def test_noise_is_flat() -> None:
    assert missed(flatness(made_up())) == []


def test_what_grpc_lost_is_found() -> None:
    """96 bytes with each request, as before it was fixed."""
    assert missed(flatness(made_up(leak_bytes=96))) == [
        "memory growth over the last third, bytes/request"
    ]


def test_a_latency_that_creeps_up_is_found() -> None:
    found = missed(flatness(made_up(slower_ms=60)))
    assert found == ["median latency of served requests, and its change over the last third"]


def test_a_run_too_short_is_not_judged() -> None:
    assert missed(flatness(made_up(leak_bytes=96, count=30))) == []
    assert missed(flatness([])) == []


def test_a_slope_through_noise() -> None:
    """It is found within a few of its standard errors."""
    source = Random(2)
    x = [float(step) for step in range(200)]
    line = trend(x, [3 * one + source.gauss(0, 5) for one in x])
    assert abs(line.slope - 3) < 4 * line.error < 0.2
    assert len(last_third(made_up())) == 101


def test_requests_that_nobody_accounts_for() -> None:
    outcomes = Counter({"served": 90, "queue-timeout": 5, "left": 2, "broken: status 500": 1})
    assert missed(audit.outcome_rows(outcomes, 100)) == [
        "failed without a reason",
        "without a known outcome",
    ]
    assert missed(audit.outcome_rows(Counter({"served": 98, "left": 2}), 100)) == []


@pytest.mark.parametrize(
    ("counted", "agrees"),
    [
        ({"served": 90, "queue-timeout": 8, "withdrawn": 2, "passed": 40}, True),
        ({"served": 92, "queue-timeout": 8}, True),  # those who left were served
        ({"served": 90, "queue-timeout": 8}, True),  # or left before they were heard
        ({"served": 93, "queue-timeout": 7}, False),
        ({"served": 90, "queue-timeout": 8, "withdrawn": 3}, False),
        ({"served": 89, "queue-timeout": 8, "withdrawn": 2}, False),
        ({}, False),
    ],
)
def test_what_the_picker_counted(counted: dict[str, int], agrees: bool) -> None:
    """It may differ from what the clients saw by those that left, and by no other."""
    seen = {"served": 90, "queue-timeout": 8, "left": 2}
    assert (audit.disagreements(seen, counted) == []) is agrees


def test_its_section_of_the_page() -> None:
    """It is put behind the others once, and replaced after that."""
    page = run.replaced("# Reliability\nWords.\n\n## Chaos\nHeld.\n", "## Soak\none")
    assert page == "# Reliability\nWords.\n\n## Chaos\nHeld.\n\n## Soak\none\n"
    assert run.replaced(page, "## Soak\ntwo") == page.replace("one", "two")
    assert run.replaced("", "## Soak\none").startswith("# Reliability\n")


def test_the_charts() -> None:
    lines = run.charts(made_up())
    assert sum(line.startswith("line [") for line in lines) == 5
    assert lines.count("```mermaid") == lines.count("```") == 2


@pytest.mark.e2e
@pytest.mark.timeout(300)
async def test_a_short_soak() -> None:
    """Each request is accounted for, by the picker too, and nothing is left of any. How flat it
    is takes a longer run to tell."""
    outcome = await run.soak(2000, print)
    values = {row.what: row.value for row in outcome.rows}
    flat = {row.what for row in flatness(outcome.samples)}
    assert set(missed(outcome.rows)) <= flat, "\n".join(table(outcome.rows))
    assert values["served"] and values["rejected: queue-timeout"] and values["left"]
