"""Claims about extproc/core/views/fleet_capacity.py."""

from __future__ import annotations

import json

from extproc.core.address import Address
from extproc.core.decision import Queued
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.core.views.fleet_capacity import FleetHealth, fleet_capacity, fleet_health
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
    capacity = fleet_capacity(fleet.dispatcher.view)
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
    capacity = fleet_capacity(fleet.dispatcher.view)
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
    capacity = fleet_capacity(fleet.dispatcher.view)
    assert not capacity.has_common_slots
    by_name = {name: (one.slots, one.busy) for name, one in capacity.models.items()}
    assert by_name == {"tiny": (2, 3), "large": (2, 1)}
    assert (capacity.slots, capacity.busy) == (4, 4)


def test_models_of_a_router_have_their_own_slots() -> None:
    fleet = SmallFleet(2)
    loaded = ModelReading(name="tiny", slots=2, busy_slots=1)
    serve(fleet, fleet.addresses[0], loaded, ModelReading(name="cold", is_loaded=False), busy=1)
    capacity = fleet_capacity(fleet.dispatcher.view)
    assert not capacity.has_common_slots
    assert (capacity.models["tiny"].slots, capacity.models["tiny"].busy) == (2, 1)
    assert not capacity.models["cold"].is_loaded


def shown(fleet: SmallFleet) -> tuple[int, int, int]:
    health = fleet_health(fleet.dispatcher.view)
    return health.http_status, health.idle, health.processing


def test_the_slots_of_all_endpoints_that_get_requests() -> None:
    """Foreign requests count as those of this picker do."""
    fleet = SmallFleet(2, 4)
    assert shown(fleet) == (200, 6, 0)
    lease = fleet.pick(weight_slots=2)
    assert shown(fleet) == (200, 4, 2)
    others = next(address for address in fleet.addresses if address != lease.address)
    fleet.now += 1
    fleet.scrape(others, busy=1)
    assert shown(fleet) == (200, 3, 3)


def test_a_full_fleet_serves() -> None:
    """Requests are queued: that is no reason to take the fleet out of a balancer."""
    fleet = SmallFleet(1)
    fleet.pick()
    assert shown(fleet) == (200, 0, 1)
    assert json.loads(fleet_health(fleet.dispatcher.view).as_json()) == {
        "status": "no slot available",
        "slots_idle": 0,
        "slots_processing": 1,
    }


def test_who_gets_no_requests_has_no_healthy_slots() -> None:
    """A server that is down or drained, one that has not reported yet, and an empty fleet."""
    assert shown(SmallFleet()) == (503, 0, 0)
    fleet = SmallFleet(2, 3)
    fleet.add(None)
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    assert shown(fleet) == (200, 3, 0)
    fleet.now += 1
    fleet.scrape(fleet.addresses[1], busy=None, status=ScrapeStatus.UNREACHABLE)
    assert shown(fleet) == (503, 0, 0)


def test_the_status_in_one_word() -> None:
    assert json.loads(FleetHealth(idle=1, processing=9).as_json())["status"] == "ok"
    assert json.loads(FleetHealth(idle=0, processing=0).as_json())["status"] == "error"
