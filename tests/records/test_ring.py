"""Claims about extproc/records/ring.py."""

from __future__ import annotations

import tracemalloc

from extproc.records.ring import MAX_CHARS, RecordRing
from tests.telemetry.records import record


def test_the_newest_stay_with_their_numbers() -> None:
    ring = RecordRing(2)
    for number in range(3):
        assert ring.is_whole
        ring.add(record(exchange_id=f"e{number}"), None)
    assert not ring.is_whole and len(ring) == 2 and ring.total == 3
    found = [(number, each.exchange_id) for number, each, _ in ring.newest_first()]
    assert found == [(3, "e2"), (2, "e1")]


def test_what_a_client_wrote_is_cut() -> None:
    """Nobody fills the memory with long ids."""
    ring = RecordRing(1)
    long = "x" * 10_000
    ring.add(record(request_id=long, path=long, model=long, trace_parent=long), None)
    ((_, kept, _),) = ring.newest_first()
    assert (len(kept.request_id), len(kept.path), len(kept.model)) == (MAX_CHARS,) * 3
    assert not kept.trace_parent


def test_a_request_takes_about_two_kilobytes() -> None:
    """As docs/settings.md says of records.size."""
    ring = RecordRing(1000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1000):
            one = record(
                exchange_id=f"{number:016x}",
                request_id=f"{number:036x}",
                began_at=10.0 + number,
                decided_at=10.1 + number,
                duration_s=2.0 + number,
                opened_at=10.5 + number,
                first_token_s=0.5 + number,
                waited_s=0.25 + number,
            )
            ring.add(one, None)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 1000 < 2500
