"""Claims about bench/hops.py."""

from __future__ import annotations

import json

from bench.hops import LOGGED, medians


def test_medians_are_of_the_lines_that_have_a_number() -> None:
    """Without a picker Envoy's log has none for its messages."""
    first, *rest = LOGGED
    lines = [{first: value, **dict.fromkeys(rest, "-")} for value in ("30", None, "10", "20", "-")]
    assert medians("\n".join(map(json.dumps, lines))) == {first: 20.0}
    assert medians("") == {}
