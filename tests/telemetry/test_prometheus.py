"""Claims about extproc/telemetry/prometheus.py, read back by prometheus-client's own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from extproc.telemetry import definitions
from extproc.telemetry.counters import Histogram
from extproc.telemetry.definitions import Family, Kind
from extproc.telemetry.prometheus import prometheus_text
from extproc.telemetry.reading import Reading, Value

WAITS = Family(
    name="waits", kind=Kind.HISTOGRAM, help="How long.", labels=("criticality",), buckets=(0.5, 2.0)
)


def reading(family: Family, values: dict[tuple[str, ...], Value]) -> Reading:
    return Reading(taken_at_ns=0, since_ns=0, families={family: values})


def samples(one: Reading) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(prometheus_text(one).decode())
        for sample in family.samples
    }


def test_a_family_without_values_is_announced_all_the_same() -> None:
    """So what may come is known before the first of it; the text ends with a line end."""
    text = prometheus_text(reading(definitions.REQUESTS, {}))
    lines = text.decode().splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["#", "HELP", "coxswain_requests_total"],
        ["#", "TYPE", "coxswain_requests_total"],
    ]
    assert text.endswith(b"counter\n")


def test_buckets_cumulate_and_the_last_holds_all() -> None:
    """With their own labels before `le`, and the sum and count beside them."""
    histogram = Histogram(WAITS.buckets)
    for value in (0.25, 0.5, 1.0, 7.0):
        histogram.observe(value)
    assert samples(reading(WAITS, {("gold",): histogram.read()})) == {
        ("waits_bucket", "gold", "0.5"): 2,
        ("waits_bucket", "gold", "2.0"): 3,
        ("waits_bucket", "gold", "+Inf"): 4,
        ("waits_count", "gold"): 4,
        ("waits_sum", "gold"): 8.75,
    }


def test_numbers_come_back_as_they_were() -> None:
    """Whole ones, tiny ones and those that a float writes with an exponent."""
    values: dict[tuple[str, ...], Value] = {("a",): 3, ("b",): 1e-7, ("c",): 1e21, ("d",): math.pi}
    found = samples(reading(definitions.QUEUE_DEPTH, values))
    assert [found["coxswain_queue_depth", label] for label in "abcd"] == [3, 1e-7, 1e21, math.pi]


def test_odd_texts_survive_the_text_format() -> None:
    """Quotes, backslashes and line ends of a label come back as they were."""
    odd = 'say "oar"\\ and\nrow'
    reading = Reading(taken_at_ns=0, since_ns=0, families={definitions.BUILD: {(odd,): 1}})
    assert samples(reading) == {("coxswain_build_info", odd): 1}
