"""Times of another machine: whatever its clock and the network do, the bounds hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.admin.agents.stream_clock import MAX_NUMBERS, StreamClock
from extproc.admin.call_errors import CallError

EPSILON_S = 1e-6
seconds = st.floats(0, 30)
way = st.floats(1e-6, 30)  # no shorter than what is left of a difference of two large times


@given(
    epoch=st.floats(-1e6, 1e6),
    rate=st.floats(0.9995, 1.0005),
    trips=st.lists(st.tuples(way, seconds, seconds, seconds, way), min_size=1, max_size=20),
)
def test_a_scrape_is_never_dated_later_than_it_began_nor_earlier_than_it_was_answered(
    epoch: float, rate: float, trips: list[tuple[float, float, float, float, float]]
) -> None:
    """Any start of the agent's clock, any pace within what clocks do, any delays of each way."""

    def theirs(moment: float) -> float:
        return epoch + rate * moment

    clock, now, last_began_at = StreamClock(), 100.0, -math.inf
    for number, (there_s, wait_s, scrape_s, write_s, back_s) in enumerate(trips, start=1):
        clock.sent(number, now)
        heard = now + there_s
        began = heard + wait_s
        answered = began + scrape_s
        written = answered + write_s
        now = written + back_s
        after = clock.written_after(number, theirs(written) - theirs(heard), now)
        assert after <= written + EPSILON_S
        began_at, answered_at = clock.date(
            after, now, theirs(written) - theirs(began), theirs(written) - theirs(answered)
        )
        assert began_at <= began + EPSILON_S
        assert answered_at >= answered - EPSILON_S
        assert began_at <= answered_at
        assert began_at >= last_began_at, "looks keep their order"
        last_began_at = began_at
    assert not clock.is_wrong


def test_a_scrape_that_was_asked_for_is_dated_after_the_asking() -> None:
    """What a draining lease waits for: the poke went out after its client had left."""
    clock = StreamClock()
    clock.sent(1, 10.0)
    clock.sent(2, 20.0)  # the poke
    after = clock.written_after(2, held_s=0.5, now=21.0)
    began_at, answered_at = clock.date(after, 21.0, began_ago_s=0.4, answered_ago_s=0.1)
    assert 20.0 < began_at <= 20.1 and 20.9 <= answered_at <= 21.0


def test_a_clock_that_runs_fast_is_found_out_and_not_used() -> None:
    clock = StreamClock()
    clock.sent(1, 10.0)
    assert clock.written_after(1, held_s=50.0, now=12.0) == 10.0
    assert clock.is_wrong
    assert clock.written_after(1, held_s=60.0, now=100.0) == 10.0, "nor where it could be true"


def test_a_jump_of_the_network_makes_no_scrape_older_than_the_one_before() -> None:
    clock = StreamClock()
    clock.sent(1, 10.0)
    first, _ = clock.date(clock.written_after(1, 0.2, 10.3), 10.3, 0.1, 0.0)
    clock.sent(2, 10.31)  # travels for seconds: nothing is known of the writing but this
    second, _ = clock.date(clock.written_after(2, 0.0, 13.0), 13.0, 2.5, 0.0)
    assert second >= first


@pytest.mark.parametrize("held_s", [-0.1, math.inf, math.nan, 1e9])
def test_impossible_ages_are_rejected(held_s: float) -> None:
    clock = StreamClock()
    clock.sent(1, 0.0)
    with pytest.raises(CallError):
        clock.written_after(1, held_s, 1.0)
    with pytest.raises(CallError):
        clock.date(0.5, 1.0, held_s, 0.0)
    with pytest.raises(CallError):
        clock.date(0.5, 1.0, began_ago_s=0.1, answered_ago_s=0.2)


def test_an_echo_of_what_was_not_sent_is_rejected() -> None:
    clock = StreamClock()
    clock.sent(1, 0.0)
    clock.sent(2, 1.0)
    clock.written_after(2, 0.0, 1.0)
    for echo in (0, 1, 3):
        with pytest.raises(CallError):
            clock.written_after(echo, 0.0, 1.0)


def test_numbers_that_are_never_echoed_are_kept_up_to_a_bound() -> None:
    clock = StreamClock()
    for number in range(1, 3 * MAX_NUMBERS):
        clock.sent(number, float(number))
    clock.written_after(3 * MAX_NUMBERS - 1, 0.0, 1e6)
    with pytest.raises(CallError):
        clock.written_after(1, 0.0, 1e6)
