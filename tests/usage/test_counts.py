"""Claims about extproc/usage/counts.py."""

from __future__ import annotations

from extproc.usage.counts import HOUR_S, MAX_KEYS, TOO_MANY, Tally, UsageCounts, UsageKey

KEY = UsageKey("web", "chat", "tiny")


def test_what_is_taken_is_counted_by_hour_and_stays_in_the_sums() -> None:
    tally = Tally()
    for at in (HOUR_S - 1, HOUR_S, HOUR_S + 5.5):
        tally.add(KEY, UsageCounts(requests=1, prompt_tokens=3, slot_s=0.5), at)
    taken = tally.take()
    assert {hour: counts.requests for (hour, _), counts in taken.items()} == {0: 1, HOUR_S: 2}
    assert tally.take() == {}
    sums = tally.since_start()[KEY]
    assert (sums.requests, sums.prompt_tokens, sums.slot_s) == (3, 9, 1.5)


def test_what_could_not_be_saved_is_kept_beside_what_came_since() -> None:
    tally = Tally()
    tally.add(KEY, UsageCounts(requests=1), 0.0)
    taken = tally.take()
    tally.add(KEY, UsageCounts(requests=2), 0.0)
    tally.put_back(taken)
    assert [counts.requests for counts in tally.take().values()] == [3]


def test_the_number_of_keys_is_bounded() -> None:
    """Further ones are summed up, and nothing is lost."""
    tally = Tally()
    for number in range(MAX_KEYS + 10):
        tally.add(UsageKey(str(number)), UsageCounts(requests=1), 0.0)
    sums = tally.since_start()
    assert len(sums) == MAX_KEYS + 1
    assert sums[TOO_MANY].requests == 10
    saved = tally.take()
    folded = [key.client for _, key in saved if key.model == TOO_MANY.model]
    assert sorted(map(int, folded)) == list(range(MAX_KEYS, MAX_KEYS + 10)), "budgets need them"
