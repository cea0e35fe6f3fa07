"""Claims about extproc/core/held_state.py; real states are in tests/stream."""

from __future__ import annotations

import pytest

from extproc.core.held_state import (
    LEASED,
    OVER,
    PASSING,
    QUEUED,
    HeldState,
    is_final,
    is_leased,
    is_over,
    ticket_of,
)


@pytest.mark.parametrize(
    ("state", "decided", "leased", "over", "ticket"),
    [
        (None, False, False, False, None),
        ((QUEUED, 0, 12.5), False, False, False, 0),
        ((LEASED, "10.0.0.1:8080"), True, True, False, None),
        ((PASSING,), True, False, False, None),
        ((OVER,), True, False, True, None),
    ],
)
def test_what_a_state_says(
    state: HeldState | None, decided: bool, leased: bool, over: bool, ticket: int | None
) -> None:
    assert (is_final(state), is_leased(state), is_over(state)) == (decided, leased, over)
    assert ticket_of(state) == ticket
