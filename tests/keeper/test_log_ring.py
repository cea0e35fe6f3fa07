"""Claims about extproc/keeper/log_ring.py: lines kept, followed, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.keeper.log_ring import MAX_BEHIND, MAX_LINE_CHARS, MAX_LINES, LogRing


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\r" not in b)), st.randoms())
def test_lines_may_be_cut_anywhere(lines: list[bytes], random: object) -> None:
    whole = b"\n".join(lines)
    ring = LogRing()
    rest = whole
    while rest:
        size = getattr(random, "randint")(1, len(rest))  # noqa: B009
        ring.feed(rest[:size])
        rest = rest[size:]
    ring.end()
    expected = whole.decode(errors="replace").split("\n")
    if expected[-1] == "":
        expected.pop()  # what ends a line begins none
    assert ring.tail(MAX_LINES) == expected


def test_only_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    ring = LogRing()
    for number in range(MAX_LINES + 5):
        ring.add(f"line {number}")
    assert len(ring.tail(10**6)) == MAX_LINES and ring.tail(1) == [f"line {MAX_LINES + 4}"]
    assert ring.tail(0) == []
    ring.feed(b"x" * (10 * MAX_LINE_CHARS))
    assert len(ring.tail(1)[0]) == MAX_LINE_CHARS, "also without an end of line"


def test_a_reader_gets_the_past_and_the_future() -> None:
    ring = LogRing()
    ring.add("one")
    ring.add("two")
    reader = ring.follow(1)
    calls = []
    reader.notify = lambda: calls.append(1)
    ring.add("three")
    assert calls and reader.take(10) == (["two", "three"], 0)
    assert not reader.has_lines
    ring.leave(reader)
    ring.add("four")
    assert not reader.has_lines
    ring.leave(reader)  # twice is no error


def test_a_slow_reader_loses_the_oldest_lines_and_knows_it() -> None:
    ring = LogRing()
    reader = ring.follow(0)
    for number in range(MAX_BEHIND + MAX_LINES + 3):
        ring.add(str(number))
    lines, dropped = reader.take(1)
    assert (lines, dropped) == (["3"], 3)
    assert reader.take(1) == (["4"], 0)
