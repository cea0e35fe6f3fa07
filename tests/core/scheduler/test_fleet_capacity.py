"""Claims about extproc/core/scheduler/fleet_capacity.py."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.core.scheduler.decision import Queued
from extproc.core.scheduler.fleet_capacity import fleet_capacity
from tests.fakes.small_fleet import SmallFleet


def serve(fleet: SmallFleet, address: Address, *models: ModelReading, busy: int = 0) -> None:
    """A scrape of a server with two slots says which models it has."""
    fleet.now += 1.0
    observation = Observation(
        address=address,
        began_at=fleet.now,
        answered_at=fleet.now,
        status=ScrapeStatus.READY,
        slots=2,
        busy_slots=busy,
        models=models,
        context_tokens=4096,
    )
    fleet.dispatcher.observe(observation, fleet.now)


def counted(fleet: SmallFleet) -> tuple[int, int]:
    capacity = fleet_capacity(fleet.dispatcher)
    return capacity.slots, capacity.busy


def test_leased_foreign_and_queued_requests_are_busy() -> None:
    """So a slot that becomes free is not offered while somebody waits for it."""
    fleet = SmallFleet(1, 1)
    assert counted(fleet) == (2, 0)
    fleet.scrape(fleet.addresses[0], busy=1)
    assert counted(fleet) == (2, 1)
    fleet.pick()
    assert counted(fleet) == (2, 2)
    for queued in (1, 2, 3):
        fleet.queue()
        assert counted(fleet) == (2, 2 + queued)


def test_who_gets_no_requests_has_no_slots() -> None:
    fleet = SmallFleet(2, 3)
    fleet.add(None)
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    assert counted(fleet) == (3, 0)
    assert counted(SmallFleet()) == (0, 0)


def test_servers_of_the_same_models_have_common_slots() -> None:
    fleet = SmallFleet(2, 2)
    for alias, address in zip("ab", fleet.addresses, strict=True):
        serve(fleet, address, ModelReading(name="tiny", aliases=(alias,)))
    capacity = fleet_capacity(fleet.dispatcher)
    assert capacity.has_common_slots
    assert (capacity.slots, capacity.context_tokens) == (4, 4096)
    assert capacity.models["tiny"].aliases == {"a", "b"}
    assert capacity.models["tiny"].is_loaded


def test_servers_of_other_models_have_their_own() -> None:
    """A queued request counts for its model only."""
    fleet = SmallFleet(2, 2)
    tiny, large = fleet.addresses
    serve(fleet, tiny, ModelReading(name="tiny"), busy=2)
    serve(fleet, large, ModelReading(name="large"), busy=1)
    request = Request(id="r", timeout_s=60.0, model="tiny")
    assert isinstance(fleet.dispatcher.submit(request, fleet.now), Queued)
    capacity = fleet_capacity(fleet.dispatcher)
    assert not capacity.has_common_slots
    by_name = {name: (one.slots, one.busy) for name, one in capacity.models.items()}
    assert by_name == {"tiny": (2, 3), "large": (2, 1)}
    assert (capacity.slots, capacity.busy) == (4, 4)


def test_models_of_a_router_have_their_own_slots() -> None:
    fleet = SmallFleet(2)
    loaded = ModelReading(name="tiny", slots=2, busy_slots=1)
    serve(fleet, fleet.addresses[0], loaded, ModelReading(name="cold", is_loaded=False), busy=1)
    capacity = fleet_capacity(fleet.dispatcher)
    assert not capacity.has_common_slots
    assert (capacity.models["tiny"].slots, capacity.models["tiny"].busy) == (2, 1)
    assert not capacity.models["cold"].is_loaded
