"""Rankings of the endpoints, one for each set of recently used constraints.

A ranking only records which endpoints changed, and is updated when it is read: constraints cost
the changes since their last use, and unused constraints cost nothing.
"""

from collections import OrderedDict
from random import Random

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.selection.ranking import Ranking
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.model_pools import slot_pool

MAX_RANKINGS = 64
"""Rankings beside the unconstrained one; the least recently used one is dropped."""


class _CachedRanking:
    __slots__ = ("changed", "constraints", "ranking")

    def __init__(self, constraints: Constraints, random: Random) -> None:
        self.constraints = constraints
        self.ranking = Ranking(random)
        self.changed: dict[Address, None] = {}
        """In order of the changes: the order of a set would differ between runs."""


class RankingCache:
    """Rankings by constraints. A change is O(rankings), a read O(changes since the last one)."""

    def __init__(
        self, fleet: Fleet, ledger: Ledger, loads: ModelLoadTracker, random: Random
    ) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._model_loads = loads
        self._random = random
        self._any = _CachedRanking(UNCONSTRAINED, random)
        self._rankings: OrderedDict[Constraints, _CachedRanking] = OrderedDict()

    def at(self, constraints: Constraints) -> Ranking:
        """The current ranking of the eligible endpoints."""
        # Most are the same object: to compare the fields takes longer than all that follows.
        if constraints is UNCONSTRAINED or constraints == UNCONSTRAINED:
            return self._up_to_date(self._any)
        cached = self._rankings.get(constraints)
        if cached is None:
            cached = self._rankings[constraints] = _CachedRanking(constraints, self._random)
            cached.changed = dict.fromkeys(endpoint.address for endpoint in self._fleet)
            if len(self._rankings) > MAX_RANKINGS:
                self._rankings.popitem(last=False)
        elif len(self._rankings) > 1:
            self._rankings.move_to_end(constraints)
        return self._up_to_date(cached)

    def is_restricted(self, ranking: Ranking) -> bool:
        """Whether a current ranking of the first tier leaves out an endpoint that can be picked for
        others there."""
        if ranking is self._any.ranking:
            return False
        return len(ranking) < len(self._up_to_date(self._any))

    def changed(self, endpoint: Endpoint) -> None:
        """The slots, the health or the models of an endpoint changed."""
        address = endpoint.address
        self._any.changed[address] = None
        for cached in self._rankings.values():
            cached.changed[address] = None

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet."""
        for cached in (self._any, *self._rankings.values()):
            cached.ranking.remove(address)
            cached.changed.pop(address, None)

    def load_changed(self, model: str) -> None:
        """A load of that model began or ended: other endpoints may load it now."""
        for cached in self._rankings.values():
            if cached.constraints.model is not None:
                for endpoint in self._fleet:
                    if model in endpoint.models_by_name:
                        cached.changed[endpoint.address] = None

    def _up_to_date(self, cached: _CachedRanking) -> Ranking:
        if cached.changed:
            for address in cached.changed:
                self._update(cached, address)
            cached.changed.clear()
        return cached.ranking

    def _update(self, cached: _CachedRanking, address: Address) -> None:
        endpoint = self._fleet.get(address)
        if endpoint is None or not is_eligible(cached.constraints, endpoint):
            cached.ranking.remove(address)
            return
        endpoint_slots = self._ledger.endpoint_slots(address)
        if not endpoint_slots.model_pools:
            cached.ranking.update(endpoint, endpoint_slots)
            return
        pool, model, is_loaded = slot_pool(endpoint, endpoint_slots, cached.constraints.model)
        in_the_way = 0
        if model is not None and not is_loaded:
            in_the_way = endpoint_slots.leased_slots
            in_the_way += sum(reading.is_loaded for reading in endpoint.models)
        cached.ranking.update(
            endpoint,
            pool,
            is_loaded=is_loaded,
            is_open=is_loaded or model is None or self._model_loads.may_start(model),
            in_the_way=in_the_way,
        )
