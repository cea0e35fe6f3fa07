"""When the picker knew that a server was out of service: only what it said all the while."""

from __future__ import annotations

from rigs.chaos.records import Closed
from rigs.chaos.watch import Sample, closed_between

ONE = "127.0.0.1:1"
DOWN, FINE = {ONE: "down"}, dict[str, str]()


def known(*samples: tuple[dict[str, str], int]) -> list[Closed]:
    """Samples each second, asked in a tenth of one; with the picker's process each."""
    return list(
        closed_between(
            [Sample(at, at + 0.1, pid, out) for at, (out, pid) in enumerate(samples, start=1)]
        )
    )


def test_from_the_first_answer_to_the_last_question() -> None:
    (closed,) = known((FINE, 7), (DOWN, 7), (DOWN, 7), (DOWN, 7), (FINE, 7))
    assert closed == Closed(server=ONE, why="down", began_at=2.1, ended_at=4)


def test_another_process_knows_nothing_yet() -> None:
    before, after = known((DOWN, 7), (DOWN, 7), (DOWN, 8), (DOWN, 8))
    assert (before.ended_at, after.began_at) == (2, 3.1)


def test_another_reason_is_another_time() -> None:
    first, second = known((DOWN, 7), (DOWN, 7), ({ONE: "draining"}, 7), ({ONE: "draining"}, 7))
    assert (first.why, first.ended_at, second.why, second.began_at) == ("down", 2, "draining", 3.1)
