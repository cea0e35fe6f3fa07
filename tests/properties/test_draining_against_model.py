"""No request reaches a full server because a client left: the proof over random delays.

Requests arrive late, releases reach us late, scrapes begin at any moment and see the true state at
any moment until they are answered. `make test` runs the short form, `make nightly` the long one.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from tests.core.model_fleet import POOL, ModelFleet, World
from tests.core.model_server import ModelScrape, ModelServer
from tests.long_run import IS_LONG_RUN

SEEDS, STEPS = (40, 100_000) if IS_LONG_RUN else (1, 15_000)


class LeavingFleet(ModelFleet):
    """Few servers, always full, whose clients leave at any moment; each is scraped right after, as
    the scraper does. In most runs a scrape of a server begins when the last one was answered."""

    events_per_s = 250.0

    def __init__(self, random: Random) -> None:
        super().__init__(random, World.QUIET, queue_max_requests=100)
        weights = {
            self.submit: 16,
            self.answer: 8,
            self.finish: 8,
            self.leave_running: 4,
            self.begin_scrape: 4,
            self.see: 16,
            self.answer_scrape: 16,
        }
        self._events, self._weights = list(weights), list(weights.values())
        self.overlaps = random.random() < 0.2

    def change_fleet(self) -> None:
        for address in POOL[:3]:
            self.servers[address] = self._new_server(address)
        self._name(POOL[:3])
        for address in POOL[:3]:
            self.dispatcher.set_routable(address, True, self.now)

    def _new_server(self, address: Address) -> ModelServer:
        random = self.random
        return ModelServer(address, random.choice([1, 2, 3, 6]), has_numbers=random.random() < 0.9)

    def unsure_of(self, address: Address) -> None:
        self._scrape(self.servers[address])

    def begin_scrape(self) -> None:
        self._scrape(self.random.choice(list(self.servers.values())))

    def _scrape(self, server: ModelServer) -> None:
        if self.overlaps or all(scrape.server is not server for scrape in self.scrapes):
            self.scrapes.append(ModelScrape(server, self.now))


def run(seed: int, steps: int) -> LeavingFleet:
    fleet = LeavingFleet(Random(seed))
    fleet.change_fleet()
    for _ in range(steps):
        fleet.step()
    return fleet


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_no_request_reaches_a_full_server(seed: int) -> None:
    """From many seeds, then to the end: nothing stays leased."""
    run(seed, 800).finish_all()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_long_run_of_leaving_clients(seed: int) -> None:
    """A quarter of all clients leave; all other requests are served."""
    fleet = run(seed, STEPS)
    assert fleet.requests > STEPS / 6
