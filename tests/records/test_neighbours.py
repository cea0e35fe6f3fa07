"""Claims about extproc/records/neighbours.py, with numbers computed by hand."""

from __future__ import annotations

from extproc.records.neighbours import Run, neighbours


def run(exchange_id: str, began_at: float, ended_at: float, endpoint: str = "a") -> Run:
    return Run(exchange_id=exchange_id, endpoint=endpoint, began_at=began_at, ended_at=ended_at)


def test_only_the_time_together_counts() -> None:
    """From 10 to 20: one for all of it, one for 5 s, one that begins as the other ends."""
    own = run("own", 10.0, 20.0)
    others = [
        own,
        run("long", 0.0, 100.0),
        run("first", 5.0, 15.0),
        run("second", 15.0, 17.5),
        run("before", 0.0, 10.0),
        run("after", 20.0, 30.0),
        run("elsewhere", 10.0, 20.0, "b"),
    ]
    found = neighbours(own, others, all_known=True)
    assert (found.count, found.mean, found.most) == (3, 1.75, 2)


def test_one_that_took_no_time_has_none() -> None:
    found = neighbours(run("own", 10.0, 10.0), [run("long", 0.0, 100.0)], all_known=False)
    assert (found.count, found.mean, found.most, found.all_known) == (0, 0.0, 0, False)
