"""Claims about extproc/processes/fronts/buffered_frames.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from extproc.processes.fronts.buffered_frames import in_order

Moments = st.lists(st.none() | st.integers(0, 9).map(float), max_size=12)


def heard(fronts: list[list[float | None]]) -> list[tuple[int, int]]:
    """Which front is heard with which of its words, in order."""
    found: list[tuple[int, int]] = []

    def hear(front: int, word: int) -> Callable[[], None]:
        return partial(found.append, (front, word))

    said = [
        [(began_at, hear(front, word)) for word, began_at in enumerate(words)]
        for front, words in enumerate(fronts)
    ]
    for each in in_order(said):
        each()
    return found


@given(st.lists(Moments, max_size=4))
def test_each_front_is_heard_in_its_own_order_and_whole(
    fronts: list[list[float | None]],
) -> None:
    order = heard(fronts)
    for front, words in enumerate(fronts):
        assert [word for each, word in order if each == front] == list(range(len(words)))
    assert len(order) == sum(map(len, fronts))


@given(st.lists(st.lists(st.integers(0, 99).map(float), max_size=12).map(sorted), max_size=4))
def test_calls_are_heard_as_they_began(fronts: list[list[float]]) -> None:
    order = [fronts[front][word] for front, word in heard([list(words) for words in fronts])]
    assert order == sorted(order)


def test_what_begins_no_call_comes_with_the_call_before_it() -> None:
    assert heard([[None, 3.0, None], [1.0, None, 5.0]]) == [
        *((0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)),
    ]
