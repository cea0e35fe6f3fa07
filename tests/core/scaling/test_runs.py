"""Claims about extproc/core/scaling/runs.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.scaling.runs import MAX_DELAY_S, REPEAT_S, Direction, ModelRuns, Run


def test_it_is_run_once_for_each_new_number() -> None:
    """A server that is still starting is no reason for another run."""
    runs = ModelRuns()
    assert runs.due(0, 0, 0.0) is None
    first = runs.due(2, 0, 1.0)
    assert first == Run(Direction.UP, 2)
    runs.run_began(first)
    assert runs.due(3, 0, 2.0) is None, "one at a time"
    runs.run_ended(3.0, is_done=True)
    assert runs.due(2, 0, 4.0) is None, "they are starting"
    assert runs.due(3, 1, 5.0) == Run(Direction.UP, 3)
    assert runs.due(1, 2, 5.0) == Run(Direction.DOWN, 1)
    assert runs.due(2, 2, 5.0) is None


def test_after_a_start_what_serves_is_what_was_wanted() -> None:
    runs = ModelRuns()
    assert runs.due(3, 3, 0.0) is None
    assert runs.due(1, 3, 0.0) == Run(Direction.DOWN, 1)


def test_a_server_that_died_is_started_again_in_the_end() -> None:
    """With the same number, which the program must take as `make it that many`."""
    runs = ModelRuns()
    runs.run_began(Run(Direction.UP, 2))
    runs.run_ended(0.0, is_done=True)
    assert runs.due(2, 2, 10.0) is None
    assert runs.due(2, 1, 20.0) is None
    assert runs.due(2, 1, 19.0 + REPEAT_S) is None
    assert runs.due(2, 1, 20.0 + REPEAT_S) == Run(Direction.UP, 2)
    assert runs.due(2, 2, 21.0 + REPEAT_S) is None
    assert runs.due(2, 1, 22.0 + REPEAT_S) is None, "it counts from when it was seen"


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.booleans()), max_size=40))
def test_failures_delay_the_next_run(steps: list[tuple[float, bool]]) -> None:
    """Twice as long each time, up to a minute; a success ends it."""
    runs, now, failures = ModelRuns(), 0.0, 0
    not_before, wanted = 0.0, 0
    for passed_s, is_done in steps:
        now += passed_s
        run = runs.due(wanted + 1, 0, now)
        if now < not_before:
            assert run is None
            continue
        assert run is not None and run.servers == wanted + 1
        runs.run_began(run)
        runs.run_ended(now, is_done=is_done)
        if is_done:
            wanted, failures = wanted + 1, 0
        else:
            not_before = now + min(MAX_DELAY_S, 2.0**failures)
            failures += 1
