"""No request reaches a slot that a foreign request is known to use, whatever the delays."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from tests.core.model_fleet import POOL
from tests.core.model_server import ModelServer
from tests.properties.test_draining_against_model import LeavingFleet


class OccupiedFleet(LeavingFleet):
    """Some slots of each server run foreign requests for the whole time, and were scraped once
    before the first pick."""

    def change_fleet(self) -> None:
        for address in POOL[:3]:
            self.servers[address] = self._new_server(address)
        self._name(POOL[:3])
        self._scrape_all()
        for address in POOL[:3]:
            self.dispatcher.set_routable(address, True, self.now)

    def _new_server(self, address: Address) -> ModelServer:
        server = ModelServer(address, self.random.choice([2, 3, 6]))
        server.foreign = self.random.randrange(1, server.slots)
        return server

    def check(self) -> None:
        for address, server in self.servers.items():
            here = server.busy_ours(self.now) + server.foreign
            assert here <= server.slots, f"{address} runs {here} requests in {server.slots} slots"


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_no_request_reaches_a_slot_in_use(seed: int) -> None:
    fleet = OccupiedFleet(Random(seed))
    fleet.change_fleet()
    for _ in range(600):
        fleet.step()
    assert fleet.requests > 50
