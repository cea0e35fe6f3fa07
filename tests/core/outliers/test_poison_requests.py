"""Claims about extproc/core/outliers/poison_requests.py and its use by the dispatcher."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.observation import ScrapeStatus
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.outliers.poison_requests import (
    MAX_REQUESTS,
    REMEMBERED_S,
    SEEN_WITHIN_S,
    UNSURE_S,
    PoisonGuard,
)
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.slots.lease import LeaseEnd
from tests.fakes.small_fleet import SmallFleet

ONE, TWO = Address("10.0.0.1", 8000), Address("10.0.0.2", 8000)
KILLER = 7


def lose(guard: PoisonGuard, address: Address, now: float) -> None:
    """A server dies during it, and a scrape shows that."""
    guard.lost_connection(KILLER, address, now)
    guard.died(address, now + 0.1)


def test_two_deaths_are_enough() -> None:
    guard = PoisonGuard()
    lose(guard, ONE, 1.0)
    assert not guard.is_poison(KILLER, 50.0)
    lose(guard, TWO, 51.0)
    assert guard.is_poison(KILLER, 60.0)
    assert guard.is_poison(KILLER, 51.0 + REMEMBERED_S)
    assert not guard.is_poison(KILLER, 52.0 + REMEMBERED_S)
    assert not guard.is_poison(KILLER + 1, 60.0)


def test_a_death_may_be_seen_before_the_lost_connection() -> None:
    guard = PoisonGuard()
    for address in (ONE, TWO):
        guard.died(address, 1.0)
        guard.lost_connection(KILLER, address, 1.1)
    assert guard.is_poison(KILLER, 60.0)


def test_equal_requests_at_one_server_see_one_death() -> None:
    """Also if a scrape shows the death between their lost connections."""
    guard = PoisonGuard()
    lose(guard, ONE, 1.0)
    guard.lost_connection(KILLER, ONE, 1.2)
    assert not guard.is_poison(KILLER, 1.3)
    guard.lost_connection(KILLER, TWO, 1.3)
    assert guard.is_poison(KILLER, 1.4)


def test_an_immediate_retry_is_rejected_before_the_deaths_are_seen() -> None:
    guard = PoisonGuard()
    guard.lost_connection(KILLER, ONE, 1.0)
    guard.lost_connection(KILLER, TWO, 1.01)
    assert guard.is_poison(KILLER, 1.02)
    assert not guard.is_poison(KILLER, 1.02 + UNSURE_S)


def test_a_server_that_is_alive_was_not_killed() -> None:
    guard = PoisonGuard()
    for now in (1.0, 2.0, 3.0):
        guard.lost_connection(KILLER, ONE, now)
        guard.seen_alive(ONE)
    lose(guard, TWO, 4.0)
    assert not guard.is_poison(KILLER, 5.0)


def test_a_much_later_death_does_not_count() -> None:
    guard = PoisonGuard()
    for address in (ONE, TWO):
        guard.lost_connection(KILLER, address, 1.0)
        guard.died(address, 1.1 + SEEN_WITHIN_S)
    assert not guard.is_poison(KILLER, 20.0)


def test_a_success_clears_it() -> None:
    guard = PoisonGuard()
    lose(guard, ONE, 1.0)
    guard.succeeded(KILLER)
    lose(guard, TWO, 2.0)
    assert not guard.is_poison(KILLER, 3.0)


def test_a_success_forgets_where_it_was_lost() -> None:
    """A death that is seen later has no suspect any more."""
    guard = PoisonGuard()
    guard.lost_connection(KILLER, ONE, 1.0)
    guard.succeeded(KILLER)
    assert not guard._lost_at
    guard.died(ONE, 1.1)
    lose(guard, TWO, 2.0)
    assert not guard.is_poison(KILLER, 3.0)


def test_all_of_it_is_bounded() -> None:
    guard = PoisonGuard()
    for number in range(1, 3 * MAX_REQUESTS):
        guard.lost_connection(number, ONE, float(number))
    assert len(guard._suspects) == MAX_REQUESTS
    assert len(guard._lost_at[ONE]) == MAX_REQUESTS
    guard.forget(ONE)
    assert not guard._lost_at


@pytest.mark.parametrize("fingerprint", [0, KILLER])
def test_the_dispatcher_rejects_the_third_attempt(fingerprint: int) -> None:
    """If its body was read: other requests cannot be distinguished."""
    fleet = SmallFleet(1, 1, 1)
    request = Request(id="r", timeout_s=60.0, fingerprint=fingerprint)
    for _ in range(2):
        outcome = fleet.dispatcher.submit(request, fleet.now)
        assert isinstance(outcome, Picked)
        lease = outcome.lease
        fleet.dispatcher.failed(lease, Fault.RESET, fleet.now)
        fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, fleet.now)
        fleet.now += 0.1
        fleet.scrape(lease.address, status=ScrapeStatus.UNREACHABLE, busy=None)
    outcome = fleet.dispatcher.submit(request, fleet.now)
    if fingerprint:
        assert isinstance(outcome, Rejected)
        assert outcome.reason is Reason.POISON_REQUEST
    else:
        assert isinstance(outcome, Picked)


def test_a_success_clears_only_its_own_request() -> None:
    """Two requests were lost with one connection: the other is suspected on."""
    guard = PoisonGuard()
    for address in (ONE, TWO):
        for fingerprint in (KILLER, KILLER + 1):
            guard.lost_connection(fingerprint, address, 1.0)
    guard.succeeded(KILLER + 1)
    for address in (ONE, TWO):
        guard.died(address, 1.1)
    assert guard.is_poison(KILLER, 60.0) and not guard.is_poison(KILLER + 1, 60.0)
