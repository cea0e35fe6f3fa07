"""Claims about extproc/runners/llama_server/counters.py."""

from pathlib import Path

import pytest

from extproc.core.observation import Counter, TokenCounters
from extproc.runners.answers import ParseError
from extproc.runners.llama_server.counters import MAX_BYTES, parse_counters


def metrics(processed: str = "20", cached: str = "0", generated: str = "7") -> bytes:
    return (
        "# TYPE llamacpp:prompt_tokens_total counter\n"
        f"llamacpp:prompt_tokens_total {processed}\n"
        f"llamacpp:prompt_tokens_cached_total {cached}\n"
        "llamacpp:prompt_seconds_total 0.000939\n"
        f"llamacpp:tokens_predicted_total {generated}\n"
        "llamacpp:tokens_predicted_seconds_total 1.5\n"
    ).encode()


def test_small_counters_are_exact() -> None:
    assert parse_counters(metrics("20", "999999", "7"), 3.0) == TokenCounters(
        began_at=3.0, processed=Counter(20), cached=Counter(999_999), generated=Counter(7)
    )


@pytest.mark.parametrize(
    ("shown", "counter"),
    [
        ("1e+06", Counter(1_000_000, 5)),
        ("1.23457e+06", Counter(1_234_570, 5)),
        ("9.99999e+09", Counter(9_999_990_000, 5_000)),
        ("1234567", Counter(1_234_567)),  # of a build that prints all digits
    ],
)
def test_large_counters_are_rounded(shown: str, counter: Counter) -> None:
    """llama-server prints six digits."""
    assert parse_counters(metrics(generated=shown), 0.0).generated == counter


@pytest.mark.parametrize(
    "body",
    [
        b"",
        metrics(processed="nan"),
        metrics(cached="-1"),
        metrics(generated="1.5"),
        metrics(generated="9.9e+99"),
        metrics() + b" " * MAX_BYTES,
        b'{"error":{"code":501}}',
    ],
)
def test_anything_else_is_no_count(body: bytes) -> None:
    with pytest.raises(ParseError):
        parse_counters(body, 0.0)


def test_a_real_server_is_read() -> None:
    recorded = Path(__file__).parents[2] / "data" / "llamacpp" / "metrics_busy.txt"
    counters = parse_counters(recorded.read_bytes(), 0.0)
    assert (counters.processed, counters.generated) == (Counter(20), Counter(0))
