"""Claims about extproc/telemetry/usage_values.py."""

from __future__ import annotations

from extproc.telemetry import definitions
from extproc.telemetry.usage_values import read_usage
from extproc.usage.counts import UsageCounts, UsageKey


def test_each_count_is_a_sample() -> None:
    counts = UsageCounts(
        requests=5,
        rejected=2,
        uncounted=1,
        prompt_tokens=30,
        cached_tokens=10,
        generated_tokens=40,
        slot_s=1.5,
    )
    key = UsageKey("web", "chat", "tiny")
    found = read_usage({key: counts})
    assert set(found) == set(definitions.USAGE_FAMILIES)
    assert found == {
        definitions.USAGE_REQUESTS: {
            (*key, "counted"): 4,
            (*key, "uncounted"): 1,
            (*key, "rejected"): 2,
        },
        definitions.USAGE_TOKENS: {
            (*key, "prompt"): 30,
            (*key, "cached"): 10,
            (*key, "generated"): 40,
        },
        definitions.USAGE_SLOT_SECONDS: {tuple(key): 1.5},
    }
