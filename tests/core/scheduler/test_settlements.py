"""Claims about extproc/core/scheduler/settlements.py: picks and rejections."""

from __future__ import annotations

import pytest

from extproc.core.decision import Picked
from extproc.core.rejection import Reason, Rejected
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet


def test_fallbacks_are_the_next_in_order() -> None:
    """Two others, best first, without leases; fewer if the fleet has no more."""
    fleet = SmallFleet(8, 4, 2, 2)
    for address, busy in zip(fleet.addresses, (0, 1, 1, 2), strict=True):
        fleet.scrape(address, busy=busy)
    outcome = fleet.submit()
    assert isinstance(outcome, Picked)
    a, b, c, _ = fleet.addresses
    assert (outcome.lease.address, outcome.fallbacks) == (a, (b, c))
    assert fleet.account(b).leased_slots == 0
    lonely = SmallFleet(1).submit()
    assert isinstance(lonely, Picked) and lonely.fallbacks == ()


def test_no_fallbacks_if_none_are_configured() -> None:
    """The setting may be 0."""
    outcome = SmallFleet(2, 2, fallbacks=0).submit()
    assert isinstance(outcome, Picked) and outcome.fallbacks == ()


def test_the_picked_endpoint_is_not_its_own_fallback() -> None:
    """Also if the lease made it the worst of all."""
    fleet = SmallFleet(1, 4, 4, 4)
    for address in fleet.addresses[1:]:
        fleet.scrape(address, busy=1)
    outcome = fleet.submit()
    assert isinstance(outcome, Picked)
    assert outcome.lease.address == fleet.addresses[0]
    assert len(outcome.fallbacks) == 2 and outcome.lease.address not in outcome.fallbacks


def test_without_any_endpoint_the_reason_is_no_endpoint() -> None:
    """A full queue, a timeout of 0, or a deadline: no endpoint serves, so the reason is
    `no-endpoint`."""
    outcome = SmallFleet(queue_max_requests=0).submit()
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.NO_ENDPOINT
    fleet = SmallFleet()
    outcome = fleet.submit(timeout_s=0.0)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.NO_ENDPOINT
    ticket = fleet.queue(timeout_s=1.0)
    fleet.pass_time(1.0)
    assert fleet.rejected(ticket).reason is Reason.NO_ENDPOINT


@pytest.mark.parametrize(
    ("lost", "reason"), [((1,), Reason.NO_ENDPOINT), ((2,), Reason.QUEUE_TIMEOUT)]
)
def test_without_any_eligible_endpoint_the_reason_is_no_endpoint(
    lost: tuple[int, ...], reason: Reason
) -> None:
    """A gateway allowed one of two, and while its request is queued that one goes down."""
    fleet = SteeredFleet()
    only, _ = fleet.add(1), fleet.add(1)
    for _ in range(2):
        fleet.pick()
    ticket = fleet.queue(timeout_s=5.0, allowed=frozenset({only}))
    for number in lost:
        fleet.dispatcher.connect_failed(fleet.addresses[number - 1], fleet.now)
    fleet.now += 5.0
    fleet.dispatcher.advance(fleet.now)
    settlement = fleet.listener.settlements[ticket.id]
    assert isinstance(settlement, Rejected) and settlement.reason is reason


def test_retry_after_follows_the_queue() -> None:
    """An assignment every 5 s and two queued requests: 15 s."""
    fleet = SmallFleet(1, queue_max_requests=4)
    lease = fleet.pick()
    tickets = [fleet.queue() for _ in range(4)]
    for ticket in tickets[:2]:
        fleet.now += 5.0
        fleet.finish(lease)
        lease = fleet.handed(ticket)
    fleet.queue()
    fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected)
    assert outcome.retry_after_s == pytest.approx(25.0)


def test_retry_after_is_between_a_second_and_a_minute() -> None:
    """While nothing is known yet, and if each request waits for an hour."""
    fleet = SmallFleet(1, queue_max_requests=1)
    lease = fleet.pick()
    ticket = fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 1.0
    for _ in range(3):
        fleet.now += 3600.0
        fleet.finish(lease)
        lease, ticket = fleet.handed(ticket), fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 60.0


def test_an_empty_queue_is_not_slow() -> None:
    """Time with an empty queue does not lengthen the retry time."""
    fleet = SmallFleet(1, queue_max_requests=1)
    lease = fleet.pick()
    for gap in (5.0, 5.0, 3600.0, 5.0):
        ticket = fleet.queue()
        fleet.now += gap
        fleet.finish(lease)
        lease = fleet.handed(ticket)
    fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s < 30.0
