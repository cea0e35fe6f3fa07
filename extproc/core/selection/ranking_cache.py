"""Rankings of the endpoints, one for each demand that was asked for lately.

A ranking only remembers which endpoints changed, and is brought up to date when it is asked: a
demand costs what changed since it was asked last, and one that nobody asks for costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.selection.ranking import Ranking
from extproc.core.slots.model_pools import slot_pool

if TYPE_CHECKING:
    from random import Random

    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.fleet.membership import Fleet
    from extproc.core.slots.ledger import Ledger
    from extproc.core.slots.model_loading import ModelLoadTracker

MAX_RANKINGS = 64
"""Rankings beside the one of all; the one that was not asked for longest is dropped."""


class _CachedRanking:
    __slots__ = ("changed", "constraints", "ranking")

    def __init__(self, constraints: Constraints, random: Random) -> None:
        self.constraints = constraints
        self.ranking = Ranking(random)
        self.changed: dict[Address, None] = {}
        """In the order of the changes: a set's order would differ from run to run."""


class RankingCache:
    """Rankings by demand. A change is O(views), a question O(changes since the last one)."""

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
        """The ranking of the endpoints that suit, up to date."""
        if constraints == UNCONSTRAINED:
            return self._up_to_date(self._any)
        view = self._rankings.get(constraints)
        if view is None:
            view = self._rankings[constraints] = _CachedRanking(constraints, self._random)
            view.changed = dict.fromkeys(endpoint.address for endpoint in self._fleet)
            if len(self._rankings) > MAX_RANKINGS:
                self._rankings.popitem(last=False)
        elif len(self._rankings) > 1:
            self._rankings.move_to_end(constraints)
        return self._up_to_date(view)

    def changed(self, endpoint: Endpoint) -> None:
        """Its numbers, its health or what it serves is another than before."""
        address = endpoint.address
        self._any.changed[address] = None
        for view in self._rankings.values():
            view.changed[address] = None

    def forget(self, address: Address) -> None:
        """It left the fleet."""
        for view in (self._any, *self._rankings.values()):
            view.ranking.remove(address)
            view.changed.pop(address, None)

    def load_changed(self, model: str) -> None:
        """A load of that model began or ended: who may be asked for it is another than before."""
        for view in self._rankings.values():
            if view.constraints.model is not None:
                for endpoint in self._fleet:
                    if model in endpoint.models_by_name:
                        view.changed[endpoint.address] = None

    def _up_to_date(self, view: _CachedRanking) -> Ranking:
        if view.changed:
            for address in view.changed:
                self._update(view, address)
            view.changed.clear()
        return view.ranking

    def _update(self, view: _CachedRanking, address: Address) -> None:
        endpoint = self._fleet.get(address)
        if endpoint is None or not is_eligible(view.constraints, endpoint):
            view.ranking.remove(address)
            return
        pool, model, is_loaded = slot_pool(
            endpoint, self._ledger.endpoint_slots(address), view.constraints.model
        )
        view.ranking.update(
            endpoint,
            pool,
            is_loaded=is_loaded,
            is_open=is_loaded or model is None or self._model_loads.may_start(model),
        )
