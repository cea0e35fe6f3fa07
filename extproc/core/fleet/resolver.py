"""What a new request asks for, in the terms of the fleet: its model, its demand, its objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.constraints import (
    NO_NUMBERS,
    UNCONSTRAINED,
    UNRESOLVED,
    Constraints,
    constraints_for,
)
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.model_names import ModelNames
from extproc.core.fleet.splits import Splits, resolve_model
from extproc.core.objective import Objective, Objectives
from extproc.core.prompt_blocks import reseeded
from extproc.core.rejection import Reason
from extproc.core.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from random import Random

    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.fleet.membership import Fleet
    from extproc.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """`splits`: by the name that clients use, the models it stands for with their weights."""

    model_match: ModelMatch = ModelMatch.LENIENT
    splits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    objectives: Objectives = field(default_factory=Objectives)


class ModelChange(NamedTuple):
    """Names of models that an endpoint is the first to serve now, or was the last."""

    gained: frozenset[str]
    lost: frozenset[str]


class RequestResolver:
    """Knows what the fleet reports. Every call is O(what one request or endpoint names)."""

    def __init__(self, fleet: Fleet, options: ResolverOptions, random: Random) -> None:
        self._fleet = fleet
        self._options = options
        self._random = random
        is_lenient = options.model_match is ModelMatch.LENIENT
        self.names = ModelNames(fleet, options.splits, is_lenient=is_lenient)
        self.models = self.names.models
        self.adapters = self.names.adapters

    def expect(self, address: Address) -> None:
        """It joined the fleet, or left it: what it serves it tells when it is looked at."""
        endpoint = self._fleet.get(address)
        if endpoint is not None:
            self.names.expect(endpoint)

    def report(self, endpoint: Endpoint) -> ModelChange:
        """Take over what an endpoint serves now; returns what that changes for the fleet."""
        gained = frozenset(n for n in endpoint.models_by_name if not self.models.is_known(n))
        return ModelChange(gained, self.names.report(endpoint))

    def forget(self, address: Address) -> ModelChange:
        """It left the fleet; returns what that changes."""
        return ModelChange(frozenset(), self.names.forget(address))

    @property
    def must_know_models(self) -> bool:
        """Whether nobody may guess which model is meant: matching is strict, and several are
        served."""
        is_lenient = self._options.model_match is ModelMatch.LENIENT
        return not is_lenient and self.names.catalog.has_several_models

    def objective_of(self, request: Request) -> Objective:
        """Which service it belongs to."""
        return self._options.objectives.of(request.objective, request.model)

    def _objective_of_base(self, request: Request) -> Objective:
        """The same where a part of its model's name may be an adapter's."""
        base = (request.model or "").rpartition(":")[0] or request.model
        found = self.objective_of(request)
        return found if found.name else self.objective_of(replace(request, model=base))

    def resolve(self, request: Request, random: Random | None = None) -> ResolvedRequest | Reason:
        """What it asks for, or why nobody can ever serve it. `random` draws splits instead of
        the intake's own, for those who only ask."""
        objective = self.objective_of(request)
        if request.model is None and request.adapters is None and request.allowed is None:
            return ResolvedRequest(UNCONSTRAINED, objective, None)
        if self.names.is_ambiguous(request):
            return ResolvedRequest(UNRESOLVED, self._objective_of_base(request), request.model)
        adapter = request.adapter
        is_strange = adapter is not None and not self.adapters.was_ever_known(adapter)
        numbers = self._known_numbers(request)
        if numbers is None or (is_strange and not self.models.is_empty):
            return Reason.MODEL_NOT_FOUND
        if self.needs_impossible_rewrite(request):
            return Reason.BAD_REQUEST
        splits = self._sayable(request) if request.is_verbatim else self._options.splits
        model = resolve_model(request.model, splits, random or self._random)
        said = request.model if request.is_verbatim and model != request.model else None
        wanted = model
        if model is not None and not self.models.is_known(model):
            if self._options.model_match is ModelMatch.LENIENT:
                wanted = None
                if random is None and adapter is None:
                    self.names.remember_as_model(model)
            elif not self.models.was_ever_known(model) and not self.models.is_empty:
                return Reason.MODEL_NOT_FOUND
        constraints = constraints_for(wanted, adapter, said, numbers)
        if request.allowed is not None:
            constraints = constraints._replace(allowed=request.allowed)
        if not self._is_hint_of_use(constraints):
            return Reason.NO_ENDPOINT
        return ResolvedRequest(constraints, objective, model)

    def _known_numbers(self, request: Request) -> frozenset[int] | None:
        """The adapters that it names by numbers; None if no endpoint has them all. Where none
        was ever reported, nobody can tell, and any server may get them."""
        numbers = request.adapter_numbers
        if not numbers or self.adapters.is_empty:
            return NO_NUMBERS
        return numbers if self.names.catalog.has_adapters(numbers) else None

    def _is_hint_of_use(self, constraints: Constraints) -> bool:
        """Whether any that a gateway allows can serve it, now or when it has a slot again. Its
        next hint may name others, so nobody waits for one that is gone or serves other models."""
        if constraints.allowed is None:
            return True
        endpoints = map(self._fleet.get, constraints.allowed)
        return any(e is not None and e.is_usable and is_eligible(constraints, e) for e in endpoints)

    def needs_impossible_rewrite(self, request: Request) -> bool:
        """Whether its model's name is one of ours, its body cannot be told another, and those who
        serve what it stands for read it: nobody would know what is meant."""
        targets = self._targets(request)
        if not targets:
            return False
        served = [e for e in self._fleet for model in targets if model in e.models_by_name]
        return bool(served) and not self._routable_targets(request, targets)

    def _targets(self, request: Request) -> Mapping[str, float]:
        """What its model's name may stand for, if the server will read that name itself."""
        is_ours = request.is_verbatim and request.model is not None
        return self._options.splits.get(request.model or "", {}) if is_ours else {}

    def _routable_targets(self, request: Request, targets: Mapping[str, float]) -> dict[str, float]:
        """Those of the targets that somebody serves by the name that stands in the request."""
        said, allowed = request.model or "", request.allowed
        numbers = self._known_numbers(request) or NO_NUMBERS
        demands = {
            model: Constraints(model, request.adapter, allowed, said, numbers) for model in targets
        }
        return {
            model: weight
            for model, weight in targets.items()
            if any(is_eligible(demands[model], endpoint) for endpoint in self._fleet)
        }

    def _sayable(self, request: Request) -> Splits:
        """The splits for a request that cannot be changed: only of what it may be sent to."""
        targets = self._targets(request)
        if not targets:
            return {}
        return {request.model or "": self._routable_targets(request, targets) or targets}

    def decided(self, request: Request) -> tuple[Request, ResolvedRequest | Reason]:
        """One that waits for what servers have to tell, by what they have told by now."""
        spelled = self.names.split_adapter(request)
        if spelled is not request and (request.is_verbatim or request.adapter_numbers):
            return request, Reason.BAD_REQUEST  # its adapter cannot be said, or is said twice
        order = self.resolve(spelled)
        return (
            (spelled, order) if isinstance(order, Reason) else (self.apply(spelled, order), order)
        )

    def apply(self, request: Request, order: ResolvedRequest) -> Request:
        """The request as the model that its name stands for will read it: a prompt is the same
        under both names."""
        if order.model == request.model or not request.prompt_blocks:
            return request
        resolved = replace(request, model=order.model)
        before, after = self.names.seed_of(request), self.names.seed_of(resolved)
        return replace(request, prompt_blocks=reseeded(request.prompt_blocks, before, after))

    def reresolve(self, order: ResolvedRequest, change: ModelChange) -> Constraints | None:
        """What a waiting request may use after a change; None if that is what it could before.

        Whose model is served by nobody may go anywhere, or waits on; whose model was served by
        nobody does not go anywhere any more.
        """
        constraints = order.constraints
        if constraints == UNRESOLVED:
            return None
        if constraints.model is None:
            return constraints._replace(model=order.model) if order.model in change.gained else None
        if constraints.model in change.lost and self._options.model_match is ModelMatch.LENIENT:
            return constraints._replace(model=None)
        return None
