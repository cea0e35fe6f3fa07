"""Claims about extproc/core/sessions.py."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.sessions import MAX_SESSIONS, UNKNOWN_TOKENS, Sessions

A, B = Address("10.0.0.1", 1), Address("10.0.0.1", 2)


def test_a_session_is_at_home_where_it_was_served_last() -> None:
    sessions = Sessions()
    assert sessions.home("s") is None and sessions.home(None) is None
    sessions.served("s", A, 700)
    assert sessions.home("s") == A
    assert (sessions.tokens_at("s", A), sessions.tokens_at("s", B)) == (700.0, 0.0)
    sessions.served("s", B, None)
    assert (sessions.tokens_at("s", A), sessions.tokens_at("s", B)) == (0.0, UNKNOWN_TOKENS)
    assert sessions.tokens_at(None, B) == sessions.tokens_at("other", B) == 0.0


def test_sessions_are_bounded_and_the_one_that_is_used_stays() -> None:
    sessions = Sessions()
    for number in range(MAX_SESSIONS):
        sessions.served(str(number), A, 1)
    sessions.served("0", A, 1)
    for name in ("x", "y"):
        sessions.served(name, A, 1)
    assert [sessions.home(name) for name in ("0", "1", "2", "3")] == [A, None, None, A]
