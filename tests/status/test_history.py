"""Claims about extproc/status/history.py, on a real core."""

from __future__ import annotations

from dataclasses import dataclass

from extproc.core.exchange_registry import ExchangeRegistry
from extproc.status.history import HISTORY_S, INTERVAL_S, MAX_SAMPLES, History
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record


@dataclass
class Tokens:
    """How many were generated so far."""

    count: int | None = 0

    def read(self) -> int | None:
        return self.count


def new_history(fleet: SmallFleet, tokens: Tokens | None = None) -> History:
    return History(fleet.dispatcher, ExchangeRegistry(), (tokens or Tokens()).read)


def test_a_sample_has_the_slots_of_the_ledger_and_the_means_since_the_one_before() -> None:
    """Two requests held a slot for a tenth of the interval each, the second one after a wait."""
    fleet = SmallFleet(2, 3)
    history = new_history(fleet)
    fleet.scrape(fleet.addresses[1], busy=1, slots=3)
    history.advance(fleet.now)
    held_s = INTERVAL_S / 10
    for waited_s in (0.0, held_s):
        fleet.now += waited_s + held_s
        history.request_ended(
            record(
                began_at=fleet.now - waited_s - held_s,
                waited_s=waited_s,
                opened_at=fleet.now - held_s,
                duration_s=waited_s + held_s,
                slot_s=held_s,
            )
        )
    fleet.now += INTERVAL_S - 3 * held_s
    history.advance(fleet.now)
    tree = history.as_json(fleet.now + 1.0)
    assert tree["age_s"] == [INTERVAL_S + 1.0, 1.0]
    assert (tree["total"], tree["foreign"]) == ([5, 5], [1, 1])
    assert (tree["leased"], tree["queued"]) == ([0.0, 0.2], [0.0, 0.1])


def test_tokens_per_second_are_those_between_two_samples() -> None:
    """Divided by the time that really passed, and unknown where nobody reports them."""
    fleet, tokens = SmallFleet(1), Tokens(None)
    history = new_history(fleet, tokens)
    history.advance(0.0)
    tokens.count = 40  # the first report: when they were generated is not known
    history.advance(INTERVAL_S)
    tokens.count = 140
    history.advance(3 * INTERVAL_S)  # the event loop was blocked
    assert history.as_json(20.0)["tokens_per_s"] == [None, None, 100 / (2 * INTERVAL_S)]


def test_first_tokens_are_the_median_of_what_ended_since() -> None:
    """Those without a first token do not count, and a quiet interval has none."""
    history = new_history(SmallFleet(1))
    for value in (0.5, None, 9.0, 1.0):
        history.request_ended(record(first_token_s=value))
    history.advance(0.0)
    history.advance(INTERVAL_S)
    assert history.as_json(INTERVAL_S)["first_token_s"] == [1.0, None]


def test_one_sample_an_interval_and_ten_minutes_at_most() -> None:
    """However often it is asked, and however long it runs."""
    history = new_history(SmallFleet(1))
    now = 0.0
    for _ in range(4 * MAX_SAMPLES):
        now += INTERVAL_S / 2
        history.advance(now)
    ages = history.as_json(now)["age_s"]
    assert len(ages) == MAX_SAMPLES and max(ages) <= HISTORY_S
    assert history.as_json(now + 2 * HISTORY_S)["age_s"] == [], "an old sample is not shown"
