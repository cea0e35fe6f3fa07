"""Usage as metrics."""

from collections.abc import Mapping

from extproc.telemetry import definitions
from extproc.telemetry.definitions import Family
from extproc.telemetry.reading import Values
from extproc.usage.counts import UsageCounts, UsageKey


def read_usage(sums: Mapping[UsageKey, UsageCounts]) -> dict[Family, Values]:
    """The metrics of these sums since the start; they are bounded in number."""
    requests: dict[tuple[str, ...], float] = {}
    tokens: dict[tuple[str, ...], float] = {}
    slot_s: dict[tuple[str, ...], float] = {}
    for key, counts in sums.items():
        requests[*key, "counted"] = counts.requests - counts.uncounted
        requests[*key, "uncounted"] = counts.uncounted
        requests[*key, "rejected"] = counts.rejected
        tokens[*key, "prompt"] = counts.prompt_tokens
        tokens[*key, "cached"] = counts.cached_tokens
        tokens[*key, "generated"] = counts.generated_tokens
        slot_s[tuple(key)] = counts.slot_s
    return {
        definitions.USAGE_REQUESTS: requests,
        definitions.USAGE_TOKENS: tokens,
        definitions.USAGE_SLOT_SECONDS: slot_s,
    }
