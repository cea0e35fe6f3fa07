"""Claims about extproc/app/monitoring/recent.py."""

from __future__ import annotations

from extproc.app.monitoring.recent import BUCKET_S, RECENT_S, RecentValues


def test_values_are_summed_until_they_are_old() -> None:
    now = 1000.0
    values = RecentValues(lambda: now)
    assert (values.total, values.highest) == (0, 0)
    values.add(1)
    values.add(3)
    now += RECENT_S / 2
    values.add(2)
    assert (values.total, values.highest) == (6, 3)
    now += RECENT_S / 2 + BUCKET_S
    assert (values.total, values.highest) == (2, 2)
    now += RECENT_S
    assert (values.total, values.highest) == (0, 0)


def test_memory_is_bounded_although_nobody_reads() -> None:
    now = 0.0
    values = RecentValues(lambda: now)
    for _ in range(10_000):
        now += 1
        values.add(1)
    assert len(values._buckets) <= RECENT_S / BUCKET_S + 1
