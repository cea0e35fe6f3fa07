"""Claims about extproc/core/slots/model_pools.py: each model of a router has slots of its own."""

from __future__ import annotations

from dataclasses import replace

from extproc.core.observation import ModelReading, RouterReading, is_router
from extproc.core.slots.lease import LeaseEnd
from extproc.core.slots.model_pools import UNLOADED_SLOTS
from tests.fakes.steered_fleet import SteeredFleet


def loaded(name: str, slots: int, busy_slots: int = 0) -> ModelReading:
    return ModelReading(name=name, slots=slots, busy_slots=busy_slots)


def unloaded(name: str) -> ModelReading:
    return ModelReading(name=name, is_loaded=False)


def test_only_routers_have_model_pools() -> None:
    """They report slots by model, or models that are not loaded."""
    assert not is_router(()) and not is_router((ModelReading(name="a"),))
    assert is_router((loaded("a", 2),)) and is_router((unloaded("a"),))


def test_a_model_that_is_not_loaded_has_one_slot() -> None:
    fleet = SteeredFleet()
    address = fleet.add(2, models=[loaded("a", 2), unloaded("b")])
    pools = fleet.dispatcher.ledger.endpoint_slots(address).model_pools
    assert (pools["a"].slots, pools["b"].slots) == (2, UNLOADED_SLOTS)
    fleet.pick(model="b")
    fleet.queue(model="b")


def test_foreign_slots_are_counted_by_model() -> None:
    fleet = SteeredFleet()
    address = fleet.add(4, models=[loaded("a", 2), loaded("b", 2)])
    fleet.now += 1.0
    fleet.scrape(address, slots=4, busy_slots=2, models=[loaded("a", 2, 2), loaded("b", 2)])
    fleet.queue(model="a")
    for _ in range(2):
        fleet.pick(model="b")


def test_a_client_that_left_during_a_load_does_not_make_a_slot_foreign() -> None:
    """No scrape proves that its request ended before one sees the model's slots."""
    fleet = SteeredFleet()
    address = fleet.add(2, models=[loaded("a", 2), unloaded("b")])
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    fleet.dispatcher.release(fleet.pick(model="b"), LeaseEnd.ABANDONED, fleet.now)
    fleet.now += 0.5
    loading = ModelReading(name="b", is_loaded=False, is_loading=True)
    fleet.scrape(address, slots=2, busy_slots=0, models=[loaded("a", 2), loading])
    assert endpoint_slots.leased_slots == 1
    fleet.now += 0.5
    fleet.scrape(address, slots=4, busy_slots=1, models=[loaded("a", 2), loaded("b", 2, 1)])
    assert endpoint_slots.foreign_slots == endpoint_slots.model_pools["b"].foreign_slots == 0
    fleet.now += 0.5
    fleet.scrape(address, slots=4, busy_slots=0, models=[loaded("a", 2), loaded("b", 2)])
    assert endpoint_slots.leased_slots == endpoint_slots.model_pools["b"].leased_slots == 0


def test_a_model_that_is_no_longer_listed_has_no_slots() -> None:
    """Its pool remains while a request runs in it."""
    fleet = SteeredFleet()
    address = fleet.add(4, models=[loaded("a", 2), loaded("b", 2)])
    pools = fleet.dispatcher.ledger.endpoint_slots(address).model_pools
    lease = fleet.pick(model="a")
    fleet.now += 1.0
    fleet.scrape(address, slots=2, busy_slots=0, models=[loaded("b", 2)])
    assert pools["a"].slots == pools["a"].free_slots == 0 and pools["a"].leases
    fleet.finish(lease)
    fleet.now += 1.0
    fleet.scrape(address, slots=2, busy_slots=0, models=[loaded("b", 2)])
    assert set(pools) == {"b"}


def test_a_plain_server_that_replaces_a_router_has_no_model_pools() -> None:
    """Neither the router's slots by model nor its foreign slots apply to it."""
    fleet = SteeredFleet()
    address = fleet.add(2, models=[loaded("a", 2, 2)], instance="router")
    fleet.now += 1.0
    fleet.scrape(address, slots=4, busy_slots=0, models=["a"], instance="plain")
    leases = [fleet.pick(model="a") for _ in range(4)]
    waiting = fleet.queue()
    fleet.finish(leases[0])
    assert fleet.served(waiting).address == address


def test_leases_of_a_model_pool_end_at_the_replacing_server() -> None:
    """They count there until then, also if that becomes a router again."""
    fleet = SteeredFleet()
    address = fleet.add(2, models=[loaded("a", 2)], instance="router")
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    lease = fleet.pick(model="a")
    for reported in (
        {"instance": "plain", "models": ["a"]},
        {"instance": "x", "models": [loaded("a", 2)]},
    ):
        fleet.now += 1.0
        fleet.scrape(address, slots=2, busy_slots=0, **reported)
        assert endpoint_slots.leased_slots == 1
    fleet.finish(lease)
    assert endpoint_slots.leased_slots == endpoint_slots.model_pools["a"].leased_slots == 0


def test_reservations_in_a_model_pool_move_to_the_replacing_server() -> None:
    fleet = SteeredFleet()
    address = fleet.add(2, models=[loaded("a", 2)], instance="router")
    lease = fleet.pick(model="a")
    heavy = fleet.queue(model="a", weight_slots=2)
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    assert endpoint_slots.model_pools["a"].reservation is heavy.reservation is not None
    fleet.now += 1.0
    fleet.scrape(address, slots=2, busy_slots=1, models=["a"], instance="plain")
    assert endpoint_slots.reservation is heavy.reservation is not None
    fleet.finish(lease)
    assert fleet.served(heavy).address == address


def test_a_pool_that_differs_from_its_leases_is_found_and_repaired() -> None:
    fleet = SteeredFleet()
    address = fleet.add(4, models=[loaded("a", 2), loaded("b", 2)])
    lease = fleet.pick(model="a")
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    endpoint_slots.model_pools["a"].leased_slots = 2
    (fault,) = endpoint_slots.faults()
    assert "a: 1 leased, 2 counted" in fault
    lease.model_pool = "gone"
    assert any("leases name a model's slots" in one for one in endpoint_slots.faults())
    lease.model_pool = "a"
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
    fleet.pick(model="a")
    fleet.queue(model="a")


def test_a_closed_model_has_no_slots_until_it_is_loaded() -> None:
    """One that is about to be unloaded keeps its pool, in which its requests end."""
    fleet = SteeredFleet()
    closed = ModelReading(name="b", is_loaded=False, is_closed=True)
    address = fleet.add(2, models=[loaded("a", 2), closed])
    pools = fleet.dispatcher.ledger.endpoint_slots(address).model_pools
    assert (pools["a"].slots, pools["b"].slots) == (2, 0)
    lease = fleet.pick(model="a")
    fleet.now += 1.0
    leaving = ModelReading(name="a", slots=2, busy_slots=1, is_closed=True)
    fleet.scrape(address, slots=2, busy_slots=1, models=[leaving, closed])
    assert pools["a"].foreign_slots == 0 and pools["a"].leases == {lease.id: lease}
    fleet.finish(lease)
    assert not pools["a"].leases


def test_a_router_that_shows_no_slots_stays_one_when_all_is_loaded() -> None:
    """Its models then look like a plain server's. One that was closed before must get its slot."""
    fleet = SteeredFleet()
    address = fleet.join()

    def scrape(*models: ModelReading) -> None:
        fleet.now += 1.0
        running = frozenset(one.name for one in models if one.is_loaded)
        router = RouterReading(autoloads=False, max_models=2, running=running, listed_at=fleet.now)
        fleet.scrape(address, models=models, router=router)

    a, b = ModelReading(name="a"), ModelReading(name="b")
    scrape(a, replace(b, is_loaded=False, is_closed=True))
    fleet.finish(fleet.pick(model="a"))
    scrape(a, b)
    assert fleet.pick(model="b").address == address


def test_a_lease_moves_into_a_pool_only_if_there_is_one() -> None:
    """A later scrape may make the pool, and the lease could not be taken out of it."""
    fleet = SteeredFleet()
    a, b, c = (ModelReading(name=name) for name in "abc")
    plain = fleet.add(1, models=("c",))
    router = fleet.add(4, models=(a, unloaded("b")))
    fleet.now += 1.0
    fleet.scrape(router, slots=4, busy_slots=None, models=(a, b, c))
    lease = fleet.pick(model="c", allowed=frozenset([plain]))
    fleet.dispatcher.responded(lease, fleet.now, served=router, has_headers=False)
    fleet.now += 1.0
    fleet.scrape(router, slots=4, busy_slots=None, models=(a, unloaded("b"), c))
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
