"""Claims about extproc/runners/timeouts.py."""

from __future__ import annotations

from dataclasses import fields

import pytest

from extproc.runners.timeouts import Timeouts


@pytest.mark.parametrize("name", [each.name for each in fields(Timeouts)])
def test_impossible_timeouts_are_rejected(name: str) -> None:
    """The error names the timeout."""
    with pytest.raises(ValueError, match=f"^{name} must be greater than 0, not 0$"):
        Timeouts(**{name: 0})


def test_only_a_question_for_slots_may_wait_for_a_decode_step() -> None:
    """With a query, too: a router's has the name of a model."""
    timeouts = Timeouts(read_s=1.0, slots_read_s=9.0)
    paths = ("/slots", "/slots?model=tiny", "/props", "/slots/0", "/v1/models?x=/slots")
    assert [timeouts.answer_s(path) for path in paths] == [9.0, 9.0, 1.0, 1.0, 1.0]
    assert [timeouts.steps(path)["read"] for path in paths] == [9.0, 9.0, 1.0, 1.0, 1.0]
