"""Which answers of a name server are believed, and how soon it is asked again."""

from __future__ import annotations

import pytest

from scraper.discovery.dns_cache import (
    EMPTY_ANSWERS,
    MAX_ANSWERS,
    DnsCache,
    Failed,
    Found,
    Nothing,
    Pace,
)


def found(*values: str, ttl_s: float = 60) -> Found[str]:
    return Found(values=values, ttl_s=ttl_s)


def test_an_answer_replaces_the_one_before() -> None:
    memory: DnsCache[str] = DnsCache()
    memory.take(found("a", "b", "a"))
    memory.take(found("b", "c"))
    assert memory.values == ("b", "c")


def test_a_failure_changes_nothing_and_is_no_word() -> None:
    memory: DnsCache[str] = DnsCache()
    memory.take(Failed("silence"))
    assert not memory.has_answered
    memory.take(found("a"))
    for _ in range(100):
        memory.take(Failed("silence"))
    assert memory.values == ("a",) and memory.has_answered


def test_nothing_is_believed_when_it_is_said_again_and_again() -> None:
    memory: DnsCache[str] = DnsCache()
    memory.take(found("a"))
    for _ in range(EMPTY_ANSWERS - 1):
        memory.take(Nothing())
        memory.take(Failed("in between: this is no evidence for either"))
        assert memory.values == ("a",)
    memory.take(Nothing())
    assert memory.values == ()


def test_one_good_answer_ends_the_doubt() -> None:
    memory: DnsCache[str] = DnsCache()
    memory.take(found("a"))
    for _ in range(10):
        memory.take(Nothing())
        memory.take(found("a"))
    assert memory.values == ("a",)


def test_an_answer_has_a_bound() -> None:
    memory: DnsCache[str] = DnsCache()
    memory.take(found(*map(str, range(5000))))
    assert len(memory.values) == MAX_ANSWERS


@pytest.mark.parametrize(
    ("ttl_s", "delay_s"), [(0, 1.0), (0.5, 1.0), (3, 3.0), (600, 5.0), (2**31, 5.0)]
)
def test_a_ttl_is_honoured_within_bounds(ttl_s: float, delay_s: float) -> None:
    assert Pace().next_delay_s([found("a", ttl_s=ttl_s)]) == delay_s


def test_the_shortest_ttl_decides_and_doubt_asks_soon() -> None:
    pace = Pace(min_s=1, max_s=100)
    assert pace.next_delay_s([found("a", ttl_s=50), found("b", ttl_s=20)]) == 20
    assert pace.next_delay_s([found("a"), Nothing()]) == 1
    assert pace.next_delay_s([]) == 100


def test_bounds_that_cross_are_rejected() -> None:
    with pytest.raises(ValueError):
        Pace(min_s=2, max_s=1)
