"""What a new request asks for, in the terms of the fleet: its model, its demand, its objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extproc.core.demand import ANY, Demand
from extproc.core.models import ModelIndex, ModelMatch, resolve_model
from extproc.core.objective import Objective, Objectives
from extproc.core.order import Order
from extproc.core.outcome import Reason

if TYPE_CHECKING:
    from random import Random

    from extproc.core.address import Address
    from extproc.core.endpoint import Endpoint
    from extproc.core.fleet import Fleet
    from extproc.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeOptions:
    """`splits`: by the name that clients use, the models it stands for with their weights."""

    model_match: ModelMatch = ModelMatch.LENIENT
    splits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    objectives: Objectives = field(default_factory=Objectives)


class Intake:
    """Knows what the fleet reports. Every call is O(what one request or endpoint names)."""

    def __init__(self, fleet: Fleet, options: IntakeOptions, random: Random) -> None:
        self._fleet = fleet
        self._options = options
        self._random = random
        self.models = ModelIndex()
        self.adapters = ModelIndex()

    def report(self, endpoint: Endpoint) -> frozenset[str]:
        """Take over what an endpoint serves now; returns the models that nobody serves now."""
        self.adapters.report(endpoint.address, endpoint.adapter_ids)
        return self.models.report(endpoint.address, endpoint.readings)

    def forget(self, address: Address) -> frozenset[str]:
        """It left the fleet; returns the models that nobody serves now."""
        self.adapters.report(address, ())
        return self.models.report(address, ())

    def objective_of(self, request: Request) -> Objective:
        """Which service it belongs to."""
        return self._options.objectives.of(request)

    def understand(self, request: Request, random: Random | None = None) -> Order | Reason:
        """What it asks for, or why nobody can ever serve it. `random` draws splits instead of
        the intake's own, for those who only ask."""
        objective = self.objective_of(request)
        if request.model is None and request.adapter is None and request.allowed is None:
            return Order(ANY, objective, None)
        allowed = request.allowed
        if allowed is not None and not any(address in self._fleet for address in allowed):
            return Reason.NO_ENDPOINT
        adapter = request.adapter
        is_strange = adapter is not None and not self.adapters.was_ever_known(adapter)
        if is_strange and not self.models.is_empty:
            return Reason.MODEL_NOT_FOUND
        model = resolve_model(request.model, self._options.splits, random or self._random)
        wanted = model
        if model is not None and not self.models.is_known(model):
            if self._options.model_match is ModelMatch.LENIENT:
                wanted = None
            elif not self.models.was_ever_known(model) and not self.models.is_empty:
                return Reason.MODEL_NOT_FOUND
        return Order(Demand(wanted, adapter, allowed), objective, model)

    def falls_back(self, demand: Demand, lost: frozenset[str]) -> Demand | None:
        """What those may use who wait for a model that nobody serves any more, if anything."""
        if demand.model in lost and self._options.model_match is ModelMatch.LENIENT:
            return demand._replace(model=None)
        return None
