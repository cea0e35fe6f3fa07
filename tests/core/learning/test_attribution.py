"""Claims about extproc/core/learning/attribution.py: whose fault the end of a request is."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import ScrapeStatus
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.small_fleet import SmallFleet

TO_EJECT = 3
"""Failures in a row."""


class Fleet(SmallFleet):
    """Two endpoints; a request goes to the one that a test names."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.bad, self.good = self.addresses

    def send(self, address: Address, fingerprint: int = 0) -> Lease:
        self.now += 0.01
        request = Request(
            id="r", timeout_s=60.0, allowed=frozenset({address}), fingerprint=fingerprint
        )
        outcome = self.dispatcher.submit(request, self.now)
        assert isinstance(outcome, Picked), outcome
        return outcome.lease

    def fail(self, fault: Fault, fingerprint: int = 0) -> None:
        lease = self.send(self.bad, fingerprint)
        self.dispatcher.failed(lease, fault, self.now)
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    @property
    def is_out(self) -> bool:
        return self.endpoint(self.bad).is_ejected

    def is_poison(self, fingerprint: int) -> bool:
        request = Request(id="r", timeout_s=0.0, fingerprint=fingerprint)
        outcome = self.dispatcher.submit(request, self.now)
        if isinstance(outcome, Picked):
            self.dispatcher.release(outcome.lease, LeaseEnd.SERVED, self.now)
        return isinstance(outcome, Rejected) and outcome.reason.value == "poison-request"


def test_one_request_counts_once() -> None:
    """Headers with an error, then a reset, then its end: one failure."""
    fleet = Fleet()
    for _ in range(TO_EJECT - 1):
        lease = fleet.send(fleet.bad)
        for fault in (Fault.SERVER_ERROR, Fault.RESET, Fault.BROKEN_ANSWER):
            fleet.dispatcher.failed(lease, fault, fleet.now)
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert not fleet.is_out
    fleet.fail(Fault.RESET)
    assert fleet.is_out


def test_a_request_that_ended_before_is_nobodys_fault() -> None:
    fleet = Fleet()
    for _ in range(TO_EJECT):
        lease = fleet.send(fleet.bad)
        fleet.finish(lease)
        fleet.dispatcher.failed(lease, Fault.RESET, fleet.now)
    assert not fleet.is_out


@pytest.mark.parametrize("good_end", [True, False])
def test_only_a_complete_response_counts_in_favour(good_end: bool) -> None:
    """A client that left says nothing about the server."""
    fleet = Fleet()
    for _ in range(TO_EJECT - 1):
        fleet.fail(Fault.SERVER_ERROR)
    lease = fleet.send(fleet.bad)
    if good_end:
        fleet.finish(lease)
    else:
        fleet.abandon(lease)
    fleet.fail(Fault.SERVER_ERROR)
    assert fleet.is_out is not good_end


def test_a_server_whose_process_died_under_the_same_request_twice_was_killed_by_it() -> None:
    """Another instance answers the next scrape: the one before is dead."""
    fleet = Fleet()
    for instance in ("first", "second"):
        fleet.now += 1.0
        fleet.scrape(fleet.bad, instance=instance)
        fleet.fail(Fault.RESET, fingerprint=7)
    fleet.now += 1.0
    fleet.scrape(fleet.bad, instance="third")
    assert fleet.is_poison(7) and not fleet.is_poison(8)


def test_a_lost_connection_to_a_server_that_lives_is_no_death() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.fail(Fault.RESET, fingerprint=7)
        fleet.now += 1.0
        fleet.scrape(fleet.bad)
    assert not fleet.is_poison(7)


def test_an_error_with_headers_is_no_death() -> None:
    """The server answered, and went down later for another reason."""
    fleet = Fleet()
    for instance in ("first", "second"):
        fleet.now += 1.0
        fleet.scrape(fleet.bad, instance=instance)
        fleet.fail(Fault.SERVER_ERROR, fingerprint=7)
        fleet.now += 1.0
        fleet.scrape(fleet.bad, status=ScrapeStatus.UNREACHABLE)
    assert not fleet.is_poison(7)


def test_a_failed_scrape_proves_neither_life_nor_death() -> None:
    """The server may be too busy to answer: the connections before it were lost all the same."""
    fleet = Fleet()
    for instance in ("first", "second"):
        fleet.now += 1.0
        fleet.scrape(fleet.bad, instance=instance)
        fleet.fail(Fault.RESET, fingerprint=7)
        fleet.scrape(fleet.bad, status=ScrapeStatus.FAILED)
        fleet.now += 1.0
        fleet.scrape(fleet.bad, status=ScrapeStatus.UNREACHABLE)
    assert fleet.is_poison(7)


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_response_that_was_released_at_its_headers_counts_when_it_has_passed(
    is_broken: bool,
) -> None:
    """Whole, it clears the failures before it; broken off, it is one more."""
    fleet = Fleet()
    for _ in range(TO_EJECT - 1):
        fleet.fail(Fault.BROKEN_ANSWER)
    lease = fleet.send(fleet.bad)
    request = Request(id="r", timeout_s=1.0)
    fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now, is_received=False)
    fleet.dispatcher.conclude(lease, request, fleet.now, is_broken=is_broken)
    assert fleet.is_out is is_broken
    if not is_broken:
        fleet.fail(Fault.BROKEN_ANSWER)
        assert not fleet.is_out


def test_the_end_of_a_response_whose_server_left_the_fleet_changes_nothing() -> None:
    fleet = Fleet()
    lease = fleet.send(fleet.bad)
    fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now, is_received=False)
    fleet.dispatcher.set_members("test", [EndpointSpec(address=fleet.good)], fleet.now)
    request = Request(id="r", timeout_s=1.0)
    fleet.dispatcher.conclude(lease, request, fleet.now, is_broken=True)
    assert fleet.dispatcher.faults(fleet.now) == []
