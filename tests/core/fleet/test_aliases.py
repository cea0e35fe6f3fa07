"""Claims about extproc/core/fleet/aliases.py: models, aliases and the models of routers."""

from __future__ import annotations

import pytest

from extproc.core.fleet.aliases import MAX_REMEMBERED, ModelIndex
from extproc.core.observation import ModelReading, ScrapeStatus
from tests.fakes.steered_fleet import SteeredFleet


def test_a_model_name_precedes_an_alias_of_another() -> None:
    """In any order of the list; of two equal aliases the first applies."""
    models = [
        ModelReading(name="a", aliases=("b", "c"), slots=1),
        ModelReading(name="b", aliases=("c",), slots=4),
    ]
    for readings in (models, models[::-1]):
        fleet = SteeredFleet()
        endpoint = fleet.dispatcher.fleet.get(fleet.add(5, models=readings))
        assert endpoint is not None
        assert endpoint.models_by_name["b"].name == "b"
        assert endpoint.models_by_name["c"] is readings[0]


def test_requests_with_one_adapter_share_an_endpoint() -> None:
    """llama.cpp batches only equal adapters: a second pirate joins the first."""
    fleet = SteeredFleet()
    for _ in range(4):
        fleet.add(4, models=["m"], adapters=["bard", "pirate"])
    bard, pirate = fleet.pick(adapter="bard"), fleet.pick(adapter="pirate")
    assert bard.address != pirate.address
    for _ in range(10):
        lease = fleet.pick(adapter="bard")
        assert lease.address != pirate.address
        fleet.finish(lease)


def router(*loaded: str, busy: int = 0) -> tuple[ModelReading, ...]:
    """Models a and b; the loaded ones have two slots."""
    return tuple(
        ModelReading(name=name, slots=2, busy_slots=busy)
        if name in loaded
        else ModelReading(name=name, is_loaded=False)
        for name in ("a", "b")
    )


def test_a_router_has_slots_by_model() -> None:
    """Free slots of one loaded model do not help a request for the other."""
    fleet = SteeredFleet()
    fleet.add(4, models=router("a", "b"))
    for _ in range(2):
        fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    lease = fleet.pick(model="b")
    fleet.finish(lease)
    assert fleet.is_waiting(waiting)


def test_a_router_that_has_the_model_loaded_is_preferred() -> None:
    fleet = SteeredFleet()
    fleet.add(2, models=router("b"))
    loaded = fleet.add(2, models=router("a"))
    assert [fleet.pick(model="a").address for _ in range(2)] == [loaded, loaded]


def test_one_load_of_a_model_at_a_time() -> None:
    """The others wait until it is loaded; the next one gets a free slot there, and only when there
    are none left, and none was free for as long as a load takes, may another router load the
    model."""
    fleet = SteeredFleet()
    routers = [fleet.add(2, models=router("b")) for _ in range(3)]
    loading = fleet.pick(model="a").address
    waiting = [fleet.queue(model="a") for _ in range(3)]
    assert loading in routers
    fleet.now += 5
    fleet.scrape(loading, slots=4, busy_slots=1, models=router("a", "b", busy=0))
    assert [fleet.is_waiting(ticket) for ticket in waiting] == [False, True, True]
    fleet.pass_time(5)
    assert [fleet.is_waiting(ticket) for ticket in waiting] == [False, False, True]
    assert fleet.served(waiting[0]).address == loading
    assert fleet.served(waiting[1]).address != loading


def test_a_load_that_fails_is_tried_elsewhere() -> None:
    fleet = SteeredFleet()
    for _ in range(2):
        fleet.add(2, models=router("b"))
    loading = fleet.pick(model="a").address
    waiting = fleet.queue(model="a")
    fleet.scrape(loading, status=ScrapeStatus.UNREACHABLE)
    assert fleet.served(waiting).address != loading


def test_remembered_names_are_bounded() -> None:
    index = ModelIndex()
    address = SteeredFleet().add(1)
    for number in range(MAX_REMEMBERED + 10):
        lost = index.report(address, [f"m{number}"])
        assert len(lost) == (number > 0)
    assert not index.was_ever_known("m0") and index.was_ever_known("m11")
    assert index.is_known(f"m{MAX_REMEMBERED + 9}") and not index.is_known("m11")


@pytest.mark.parametrize("models", [(), ("m",)])
def test_a_plain_server_has_no_model_pools(models: tuple[str, ...]) -> None:
    fleet = SteeredFleet()
    address = fleet.add(1, models=models)
    assert fleet.dispatcher.ledger.endpoint_slots(address).model_pools == {}
