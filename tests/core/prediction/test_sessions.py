"""Claims about extproc/core/prediction/sessions.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.prediction.sessions import MAX_SESSIONS, UNKNOWN_TOKENS, Sessions
from tests.fakes.steered_fleet import SteeredFleet

A, B = Address("10.0.0.1", 1), Address("10.0.0.1", 2)


def test_a_session_belongs_to_its_last_endpoint() -> None:
    sessions = Sessions()
    assert sessions.last_endpoint("s") is None and sessions.last_endpoint(None) is None
    sessions.served("s", A, 700)
    assert sessions.last_endpoint("s") == A
    assert (sessions.tokens_at("s", A), sessions.tokens_at("s", B)) == (700.0, 0.0)
    sessions.served("s", B, None)
    assert (sessions.tokens_at("s", A), sessions.tokens_at("s", B)) == (0.0, UNKNOWN_TOKENS)
    assert sessions.tokens_at(None, B) == sessions.tokens_at("other", B) == 0.0


def test_sessions_are_bounded_and_the_recently_used_stay() -> None:
    sessions = Sessions()
    for number in range(MAX_SESSIONS):
        sessions.served(str(number), A, 1)
    sessions.served("0", A, 1)
    for name in ("x", "y"):
        sessions.served(name, A, 1)
    assert [sessions.last_endpoint(name) for name in ("0", "1", "2", "3")] == [A, None, None, A]


def test_a_restarted_server_has_no_sessions() -> None:
    """Also for sessions that came from elsewhere; those that moved away stay at their new
    endpoint."""
    sessions = Sessions()
    sessions.served("went", A, 1)
    sessions.served("came", B, 1)
    sessions.served("went", B, 2)
    sessions.served("came", A, 3)
    for _ in range(2):
        sessions.forget(A)
    assert (sessions.last_endpoint("went"), sessions.last_endpoint("came")) == (B, None)
    assert sessions.tokens_at("came", A) == 0.0
    sessions.forget(B)
    sessions.served("went", A, 4)
    assert sessions.last_endpoint("went") == A


def test_an_evicted_session_can_be_forgotten_with_its_server() -> None:
    sessions = Sessions()
    for number in range(MAX_SESSIONS + 2):
        sessions.served(str(number), A if number % 2 else B, 1)
    sessions.forget(A)
    assert [sessions.last_endpoint(str(number)) for number in (0, 1, 2, 3)] == [None, None, B, None]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_session_returns_until_its_server_is_another_process(is_replaced: bool) -> None:
    """Restarted, or out of the fleet for a while."""
    fleet = SteeredFleet()
    for _ in range(2):
        fleet.add(2, instance="one")
    lease = fleet.pick(session_id="s", prompt_tokens=1000)
    fleet.dispatcher.responded(lease, fleet.now)
    fleet.finish(lease)
    sessions, target = fleet.dispatcher.state.sessions, lease.address
    fleet.now += 1.0
    fleet.scrape(target, slots=2, busy_slots=0, instance="one")
    assert sessions.last_endpoint("s") == target
    if is_replaced:
        fleet.scrape(target, slots=2, busy_slots=0, instance="two")
    else:
        fleet.dispatcher.set_members("test", [], fleet.now)
    assert sessions.last_endpoint("s") is None
