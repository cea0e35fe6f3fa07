"""A long random run of outlier detection against servers with a known true state."""

from __future__ import annotations

from random import Random

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.outliers.ejection import EjectionState
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.request import Request
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.small_fleet import SmallFleet
from tests.long_run import IS_LONG_RUN

SLOTS, SERVERS = 4, 4
KINDS = ("/chat", "/chat grammar", "/chat media")
GOOD_S = 0.2


class World:
    """Servers that fail all requests, or none; failures come at once."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fleet = SmallFleet(*(SLOTS,) * SERVERS)
        self.broken: set[Address] = set()
        self.running: dict[int, tuple[float, Lease]] = {}
        self.failed = self.asked = 0

    def step(self) -> None:
        self.fleet.pass_time(0.02)
        now = self.fleet.now
        for id_, (until, lease) in list(self.running.items()):
            if until <= now:
                del self.running[id_]
                self._end(lease)
        kind = self.random.choice(KINDS)
        request = Request(
            id="r", timeout_s=0.0, traits=kind, fingerprint=self.random.randrange(1, 10_000)
        )
        outcome = self.fleet.dispatcher.submit(request, now)
        if isinstance(outcome, Picked):
            self.asked += 1
            address = outcome.lease.address
            until = now + (0.0 if address in self.broken else GOOD_S)
            self.running[outcome.lease.id] = (until, outcome.lease)
        self._check()

    def _end(self, lease: Lease) -> None:
        dispatcher, now = self.fleet.dispatcher, self.fleet.now
        if self.random.random() < 0.05:
            dispatcher.release(lease, LeaseEnd.ABANDONED, now)
            self.fleet.scrape(lease.address)
            return
        is_failure = lease.address in self.broken
        dispatcher.responded(lease, now, is_stream=False, is_error=is_failure)
        if is_failure:
            self.failed += 1
            dispatcher.failed(lease, Fault.SERVER_ERROR, now)
        dispatcher.release(lease, LeaseEnd.SERVED, now)

    def _check(self) -> None:
        """While a server is ejected, at most its trial was sent after the ejection; never all are
        ejected."""
        fleet, outliers = self.fleet, self.fleet.dispatcher.state.outliers
        assert sum(fleet.endpoint(address).is_ejected for address in fleet.addresses) <= 2
        for address in fleet.addresses:
            ejection = outliers.ejection(address)
            if ejection is None or not ejection.is_out:
                continue
            leases = fleet.account(address).leases.values()
            late = [lease.id for lease in leases if lease.opened_at > ejection.since]
            assert late == []
            if ejection.state is EjectionState.TRIAL:
                assert ejection.trial_id is not None


@pytest.mark.parametrize("seed", range(3 if IS_LONG_RUN else 1))
def test_the_broken_is_ejected_and_the_fixed_is_readmitted(seed: int) -> None:
    """13,500 steps; after each 4,500 another server breaks, for 20 s."""
    world = World(seed)
    fleet = world.fleet
    for _ in range(3):
        bad = world.random.choice(fleet.addresses)
        world.broken = {bad}
        failed, asked = world.failed, world.asked
        for _ in range(1000):
            world.step()
        ejected = [one for one in fleet.addresses if fleet.endpoint(one).ejection_issue is not None]
        assert ejected == [bad]
        assert world.failed - failed < 0.05 * (world.asked - asked)
        world.broken = set()
        for _ in range(3500):  # longer than the longest backoff
            world.step()
        assert all(fleet.endpoint(one).ejection_issue is None for one in fleet.addresses)
