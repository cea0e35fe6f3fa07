"""Claims about extproc/core/selection/ranking_cache.py."""

from __future__ import annotations

from random import Random

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.membership import Fleet
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.selection.ranking_cache import MAX_RANKINGS, RankingCache
from extproc.core.slots.ledger import DrainingCaps, Ledger
from extproc.core.slots.model_loading import ModelLoadTracker

A = Constraints(model="a")


class Cache:
    """A fleet whose changes a test reports to the cache by itself."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.ledger = Ledger(DrainingCaps())
        self.loads = ModelLoadTracker()
        self.rankings = RankingCache(self.fleet, self.ledger, self.loads, Random(1))
        self._addresses: list[Address] = []

    def add(self, *models: ModelReading, slots: int = 2) -> Endpoint:
        address = Address("10.0.0.1", 8000 + len(self._addresses))
        self._addresses.append(address)
        self.fleet.set_members("test", [EndpointSpec(address=one) for one in self._addresses])
        self.ledger.add_endpoint(address, 0.0)
        endpoint = self.fleet.get(address)
        assert endpoint is not None
        self.scrape(endpoint, *models, slots=slots)
        return endpoint

    def scrape(self, endpoint: Endpoint, *models: ModelReading, slots: int = 2) -> None:
        observation = Observation(
            address=endpoint.address,
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            slots=slots,
            busy_slots=0,
            models=models,
        )
        endpoint.observe(observation, HealthOptions())
        endpoint.is_routable = True
        self.ledger.observe(observation, 1.0)
        self.rankings.changed(endpoint)

    def best(self, constraints: Constraints) -> list[Address]:
        return self.rankings.at(constraints).best(9)


def serving(name: str) -> ModelReading:
    return ModelReading(name=name)


def test_only_eligible_endpoints_are_ranked() -> None:
    cache = Cache()
    one, two = cache.add(serving("a")), cache.add(serving("b"))
    assert cache.best(A) == [one.address]
    assert set(cache.best(UNCONSTRAINED)) == {one.address, two.address}


def test_a_ranking_that_was_made_before_hears_of_every_change() -> None:
    """Models come and go, slots are taken: each is seen at the next read."""
    cache = Cache()
    one, two = cache.add(serving("a")), cache.add(serving("b"))
    assert cache.best(A) == [one.address]
    cache.scrape(two, serving("a"), slots=8)
    assert set(cache.best(A)) == {one.address, two.address}
    cache.ledger.open(one.address, 2, 2.0)
    cache.rankings.changed(one)
    assert cache.best(A) == [two.address, one.address]
    cache.scrape(one, serving("b"))
    assert cache.best(A) == [two.address]


def test_a_ranking_that_nobody_reads_is_not_updated() -> None:
    """A change costs a note for each of them; the rest is done when it is read."""
    cache = Cache()
    one = cache.add(serving("a"))
    ranking = cache.rankings.at(A)
    cache.scrape(one, serving("b"))
    assert one.address in ranking
    assert cache.rankings.at(A) is ranking and one.address not in ranking


def test_an_endpoint_that_left_is_in_no_ranking() -> None:
    """Also if it had changed before, and no ranking was read since."""
    cache = Cache()
    one = cache.add(serving("a"))
    assert cache.best(A) == cache.best(UNCONSTRAINED) == [one.address]
    cache.rankings.changed(one)
    cache.rankings.forget(one.address)
    assert cache.best(A) == cache.best(UNCONSTRAINED) == []


def test_an_endpoint_that_is_gone_from_the_fleet_is_removed_when_it_is_read() -> None:
    cache = Cache()
    one = cache.add(serving("a"))
    cache.fleet.set_members("test", [])
    cache.fleet.drop(one.address)
    cache.rankings.changed(one)
    assert cache.best(A) == []


def test_while_another_loads_a_model_a_router_is_no_place_for_it() -> None:
    """Until that load has ended; for its other models nothing changes."""
    cache = Cache()
    loaded = ModelReading(name="b", slots=2)
    unloaded = ModelReading(name="a", is_loaded=False)
    one, two = (cache.add(loaded, unloaded) for _ in range(2))
    b = Constraints(model="b")

    def free(constraints: Constraints) -> set[Address]:
        return set(cache.rankings.at(constraints).free(9, 1))

    assert free(A) == free(b) == {one.address, two.address}
    cache.loads.start("a", one.address, 2.0)
    cache.rankings.load_changed("a")
    assert (free(A), free(b)) == (set(), {one.address, two.address})
    cache.loads.end("a", one.address)
    cache.rankings.load_changed("a")
    assert free(A) == {one.address, two.address}


def test_the_least_recently_read_ranking_is_dropped() -> None:
    """Every client can name models: their number has a bound. What is read stays."""
    cache = Cache()
    cache.add(serving("a"))
    kept, dropped = cache.rankings.at(A), cache.rankings.at(Constraints(model="dropped"))
    for number in range(MAX_RANKINGS - 1):
        cache.rankings.at(Constraints(model=f"m{number}"))
        assert cache.rankings.at(A) is kept
    assert cache.rankings.at(Constraints(model="dropped")) is not dropped
    assert cache.rankings.at(UNCONSTRAINED) is cache.rankings.at(UNCONSTRAINED)


def test_a_load_concerns_only_rankings_of_models_and_servers_that_list_it() -> None:
    cache = Cache()
    unloaded = ModelReading(name="a", is_loaded=False)
    cache.add(ModelReading(name="b", slots=2), unloaded), cache.add(serving("c"))
    for constraints in (A, Constraints(allowed=frozenset({Address("10.0.0.1", 8000)}))):
        cache.rankings.at(constraints)
    cache.rankings.load_changed("a")
    changed = [set(one.changed) for one in cache.rankings._rankings.values()]
    assert changed == [{Address("10.0.0.1", 8000)}, set()]


def test_constraints_that_leave_an_endpoint_out_are_restricted() -> None:
    """Only endpoints count that can be picked: others get no retry either."""
    cache = Cache()
    cache.add(serving("a"))
    assert not cache.rankings.is_restricted(cache.rankings.at(A))
    other = cache.add(serving("b"))
    assert cache.rankings.is_restricted(cache.rankings.at(A))
    assert not cache.rankings.is_restricted(cache.rankings.at(UNCONSTRAINED))
    other.is_routable = False
    cache.rankings.changed(other)
    assert not cache.rankings.is_restricted(cache.rankings.at(A))
