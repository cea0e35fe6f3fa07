"""Translates the names in a request into a model, constraints and an objective."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.constraints import (
    NO_NUMBERS,
    NO_POOL,
    UNRESOLVED,
    Constraints,
    constraints_for,
    unconstrained,
)
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.catalog import NO_NAMES
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet, PoolFleet
from extproc.core.fleet.model_names import ModelNames
from extproc.core.fleet.splits import Splits, resolve_model
from extproc.core.objective import Objective, Objectives
from extproc.core.observation import ModelReading
from extproc.core.prompt_blocks import reseeded
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """`splits`: by the name that clients use, the models it stands for with their weights. With
    `must_know_models`, a request whose model may be named where it was not read is rejected, if
    several models are served; strict matching always does that. `pools` are those of each pool,
    none where no pools are configured. Machines with a keeper load models for the pool that
    `machine_pools` has for them, others for the `default_pool`."""

    model_match: ModelMatch = ModelMatch.LENIENT
    must_know_models: bool = True
    splits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    objectives: Objectives = field(default_factory=Objectives)
    pools: Mapping[str, "ResolverOptions"] = field(default_factory=dict)
    default_pool: str = NO_POOL
    machine_pools: Mapping[str, str] = field(default_factory=dict)


class ModelChange(NamedTuple):
    """Names of models that an endpoint is now the first to serve in its pool, or was the last to
    serve there."""

    gained: frozenset[str]
    lost: frozenset[str]
    pool: str = NO_POOL


class RequestResolver:
    """Knows what the fleet reports. Every call is O(names of one request or endpoint).

    Each pool has a resolver of its own, for requests for that pool: see `of_pool`.
    """

    def __init__(
        self, fleet: Fleet, options: ResolverOptions, random: Random, pool: str = NO_POOL
    ) -> None:
        self._fleet = fleet
        self._options = options
        self._random = random
        self._pool = pool
        self._pools: dict[str, RequestResolver] = {}
        self._pool_of: dict[Address, str] = {}
        """Of the endpoints in pools."""
        self._pool_of_machine: dict[str, str] = {}
        """Of the machines that say it themselves, as routers do."""
        is_lenient = options.model_match is ModelMatch.LENIENT
        self.names = ModelNames(fleet, options.splits, is_lenient=is_lenient)
        self.models = self.names.models
        self.adapters = self.names.adapters
        for name, one in options.pools.items():
            self._pools[name] = RequestResolver(PoolFleet(fleet, name), one, random, name)

    def of_pool(self, pool: str) -> "RequestResolver":
        """What resolves the requests for a pool: its endpoints decide what names mean. O(1)."""
        return self._pools.get(pool, self) if pool else self

    @property
    def pool(self) -> str:
        """The pool whose requests it resolves; empty for that of the whole fleet."""
        return self._pool

    @property
    def fleet(self) -> Fleet:
        """The endpoints of that pool, or of the whole fleet."""
        return self._fleet

    def has_pool(self, pool: str) -> bool:
        """Whether the pool is configured, or none is and the name is empty."""
        return pool in self._pools if pool or self._pools else True

    @property
    def splits(self) -> Splits:
        """The models that other names stand for, with their weights."""
        return self._options.splits

    def renew(self, options: ResolverOptions) -> None:
        """Resolve with these from now on. Requests that were resolved keep their model, constraints
        and objective, whether they run or are queued."""
        self._options = options
        self.names.renew(options.splits, is_lenient=options.model_match is ModelMatch.LENIENT)
        for gone in self._pools.keys() - options.pools.keys():
            del self._pools[gone]
        for name, one in options.pools.items():
            known = self._pools.get(name)
            if known is not None:
                known.renew(one)
                continue
            added = RequestResolver(PoolFleet(self._fleet, name), one, self._random, name)
            self._pools[name] = added
            for endpoint in self._fleet:
                if endpoint.spec.pool == name and not endpoint.spec.is_far:
                    added.names.expect(endpoint)
                    added.names.report(endpoint)
        for machine, (readings, addresses) in self.names.loadable_at().items():
            here = self.pool_of_machine(machine)
            for name, resolver in self._pools.items():
                if (name == here) != (machine in resolver.names.loadable):
                    models = readings if name == here else {}
                    resolver.names.set_loadable(machine, models, addresses)

    def expect(self, address: Address) -> ModelChange | None:
        """An endpoint joined the fleet, or left it, or its specification changed; its first scrape
        reports its models. If it is in another pool now, returns what that changes for the one
        before, and its models are to be reported again."""
        endpoint = self._fleet.get(address)
        if endpoint is None:
            return None
        if not endpoint.spec.is_far:
            self.names.expect(endpoint)
        pool, before = endpoint.spec.pool, self._pool_of.get(address, NO_POOL)
        if not pool and not before:
            return None
        if not endpoint.spec.is_far:
            self.of_pool(pool).names.expect(endpoint)
        if before == pool:
            return None
        self._pool_of[address] = pool
        lost = self._pools[before].names.forget(address) if before in self._pools else NO_NAMES
        return ModelChange(frozenset(), lost, before)

    def report(self, endpoint: Endpoint) -> ModelChange:
        """Apply what an endpoint serves now; returns what that changes for its pool, the fleet
        without pools. The names of one of a higher tier are not the fleet's."""
        if endpoint.spec.is_far:
            change = ModelChange(frozenset(), self.names.forget(endpoint.address), self._pool)
        else:
            known = self.models
            gained = frozenset(name for name in endpoint.models_by_name if not known.is_known(name))
            change = ModelChange(gained, self.names.report(endpoint), self._pool)
        of_pool = self._pools.get(endpoint.spec.pool)
        return change if of_pool is None else of_pool.report(endpoint)

    def set_loadable(
        self,
        machine: str,
        readings: Mapping[str, ModelReading],
        addresses: frozenset[Address],
        pool: str = NO_POOL,
    ) -> ModelChange:
        """A machine can load these models, given by all of their names, and serve them at these
        addresses: requests for them are queued until one is loaded, those for this pool, or for the
        default one. Returns what that changes. For another pool it must first be gone."""
        gained = frozenset(name for name in readings if not self.models.is_known(name))
        lost = self.names.set_loadable(machine, readings, addresses)
        if readings and pool:
            self._pool_of_machine[machine] = pool
        of_pool = self._pools.get(self.pool_of_machine(machine))
        if not readings:
            self._pool_of_machine.pop(machine, None)
        if of_pool is None:
            return ModelChange(gained, lost, self._pool)
        return of_pool.set_loadable(machine, readings, addresses)

    def pool_of_machine(self, machine: str) -> str:
        """The pool for whose requests a machine loads models; empty without one."""
        named = self._options.machine_pools.get(machine, self._options.default_pool)
        return self._pool_of_machine.get(machine, named)

    def forget(self, address: Address) -> ModelChange:
        """The endpoint left the fleet, or its first tier; returns what that changes."""
        change = ModelChange(frozenset(), self.names.forget(address))
        pool = self._pool_of.get(address, NO_POOL)
        if address not in self._fleet:
            self._pool_of.pop(address, None)
        if not pool:
            return change
        return ModelChange(frozenset(), self.of_pool(pool).names.forget(address), pool)

    @property
    def must_know_models(self) -> bool:
        """Whether a request must show its model, if it names one: several models are served."""
        is_strict = self._options.model_match is ModelMatch.STRICT
        is_wanted = is_strict or self._options.must_know_models
        return is_wanted and self.names.catalog.has_several_models

    @property
    def routes_by_model(self) -> bool:
        """Whether the name of a model makes a difference: several are served, or matching is
        strict."""
        is_strict = self._options.model_match is ModelMatch.STRICT
        return is_strict or self.names.catalog.has_several_models

    def objective_of(self, request: Request) -> Objective:
        """The objective of a request."""
        return self._options.objectives.of(request.objective, request.model)

    def objective_named(self, name: str) -> Objective:
        """The objective of that name, that of a pool with its pool before it; the default if there
        is none."""
        found = self._options.objectives.of(name, None)
        if found.name or not self._pools:
            return found
        pool = self._pools.get(name.partition("/")[0])
        return found if pool is None else pool.objective_named(name)

    def _objective_of_base(self, request: Request) -> Objective:
        """The same if a part of its model name may be that of an adapter."""
        base = (request.model or "").rpartition(":")[0] or request.model
        found = self.objective_of(request)
        return found if found.name else self.objective_of(replace(request, model=base))

    def has_api(self, name: str) -> bool:
        """Whether a server of the fleet has that API, or may have it."""
        return self._fleet.has_api(name)

    def resolve(self, request: Request, random: Random | None = None) -> ResolvedRequest | Reason:
        """Resolve a request, or return why no endpoint can ever serve it. A dry run passes its own
        `random` to draw from splits."""
        objective = self.objective_of(request)
        if request.api and not self.has_api(request.api):
            return Reason.UNKNOWN_PATH
        if request.model is None and request.adapters is None and request.allowed is None:
            if not request.api:
                return ResolvedRequest(unconstrained(self._pool), objective, None)
            found = constraints_for(None, None, None, NO_NUMBERS, request.api, self._pool)
            return ResolvedRequest(found, objective, None)
        if self.names.is_ambiguous(request.model, request.adapter, request.adapter_numbers):
            return ResolvedRequest(UNRESOLVED, self._objective_of_base(request), request.model)
        adapter = request.adapter
        is_unknown = adapter is not None and not self.adapters.was_ever_known(adapter)
        numbers = self._known_numbers(request)
        if numbers is None or (is_unknown and not self.models.is_empty):
            return Reason.MODEL_NOT_FOUND
        if self.needs_impossible_rewrite(request):
            return Reason.BAD_REQUEST
        splits = self._routable_splits(request) if request.is_verbatim else self._options.splits
        model = resolve_model(request.model, splits, random or self._random)
        name_on_wire = request.model if request.is_verbatim and model != request.model else None
        wanted = model
        if model is not None and not self.models.is_known(model):
            if self._options.model_match is ModelMatch.LENIENT and not request.is_strict:
                wanted = None
                if random is None and adapter is None:
                    self.names.remember_as_model(model)
            elif not self.models.was_ever_known(model) and not self.models.is_empty:
                return Reason.MODEL_NOT_FOUND
        constraints = constraints_for(
            wanted, adapter, name_on_wire, numbers, request.api, self._pool
        )
        if request.allowed is not None:
            constraints = constraints._replace(allowed=request.allowed)
        if not self._is_hint_of_use(constraints):
            return Reason.NO_ENDPOINT
        return ResolvedRequest(constraints, objective, model, is_strict=request.is_strict)

    def is_among(self, model: str, names: frozenset[str]) -> bool:
        """Whether this name of a model is one of `names`, or stands only for models that servers
        have under one of them. O(names)."""
        if model in names:
            return True
        named = self.names.catalog.models_named
        permitted = names.union(*map(named, names))
        return all(
            target in names or (bool(named(target)) and named(target) <= permitted)
            for target in self._options.splits.get(model) or (model,)
        )

    def _known_numbers(self, request: Request) -> frozenset[int] | None:
        """The adapters that it names by number; None if no endpoint has them all. If none was ever
        reported, any server may get them."""
        numbers = request.adapter_numbers
        if not numbers or self.adapters.is_empty:
            return NO_NUMBERS
        return numbers if self.names.catalog.has_adapters(numbers) else None

    def _is_hint_of_use(self, constraints: Constraints) -> bool:
        """Whether an endpoint that the gateway allows can serve it, with or without a free slot.
        Otherwise it is not queued, because the gateway's next hint may name other endpoints."""
        if constraints.allowed is None:
            return True
        endpoints = map(self._fleet.get, constraints.allowed)
        could = (e for e in endpoints if e is not None and (e.is_usable or e.is_wakeable))
        return any(is_eligible(constraints, endpoint) for endpoint in could)

    def may_need_rewrite(
        self, model: str | None, adapter: str | None, numbers: frozenset[int]
    ) -> bool:
        """Whether the body of a request with these names may have to change for its server."""
        is_named = adapter is not None or model in self._options.splits
        if model is not None and any(endpoint.spec.far_models for endpoint in self._fleet.far):
            return True
        return is_named or self.names.is_ambiguous(model, adapter, numbers)

    def needs_impossible_rewrite(self, request: Request) -> bool:
        """Whether its model name is an alias that must be rewritten, its body cannot be changed,
        and the servers of the alias' models read the name and do not know it."""
        targets = self._targets(request)
        if not targets:
            return False
        home = (e for e in self._fleet if not e.spec.is_far)
        served = [e for e in home for model in targets if model in e.models_by_name]
        return bool(served) and not self._routable_targets(request, targets)

    def _targets(self, request: Request) -> Mapping[str, float]:
        """The models that its name may stand for, if the server will read that name itself."""
        is_ours = request.is_verbatim and request.model is not None
        return self._options.splits.get(request.model or "", {}) if is_ours else {}

    def _routable_targets(self, request: Request, targets: Mapping[str, float]) -> dict[str, float]:
        """Those of the targets that an endpoint serves under the name in the request."""
        name_on_wire, allowed = request.model or "", request.allowed
        numbers = self._known_numbers(request) or NO_NUMBERS
        constraints = {
            model: Constraints(
                model, request.adapter, allowed, name_on_wire, numbers, pool=self._pool
            )
            for model in targets
        }
        return {
            model: weight
            for model, weight in targets.items()
            if any(is_eligible(constraints[model], endpoint) for endpoint in self._fleet)
        }

    def _routable_splits(self, request: Request) -> Splits:
        """The splits for a request that cannot be changed: only models with a route."""
        targets = self._targets(request)
        if not targets:
            return {}
        return {request.model or "": self._routable_targets(request, targets) or targets}

    def decided(self, request: Request) -> tuple[Request, ResolvedRequest | Reason]:
        """Resolve a queued request again, whose names depend on what servers report."""
        spelled = self.names.split_adapter(request)
        if spelled is not request and (request.is_verbatim or request.adapter_numbers):
            return request, Reason.BAD_REQUEST  # its adapter cannot be sent, or is named twice
        resolved = self.resolve(spelled)
        return (
            (spelled, resolved)
            if isinstance(resolved, Reason)
            else (self.apply(spelled, resolved), resolved)
        )

    def apply(self, request: Request, resolved: ResolvedRequest) -> Request:
        """The request under the name of its resolved model: a prompt is the same under both
        names."""
        if resolved.model == request.model or not request.prompt_blocks:
            return request
        renamed = replace(request, model=resolved.model)
        before, after = self.names.seed_of(request), self.names.seed_of(renamed)
        return replace(request, prompt_blocks=reseeded(request.prompt_blocks, before, after))

    def reresolve(self, resolved: ResolvedRequest, change: ModelChange) -> Constraints | None:
        """The constraints of a queued request after a change; None if they are the same.

        A request for a lost model may go anywhere, or remains queued; a request for a gained model
        may no longer go anywhere.
        """
        constraints = resolved.constraints
        if constraints == UNRESOLVED or constraints.pool != change.pool:
            return None
        if constraints.model is None:
            if resolved.model in change.gained:
                return constraints._replace(model=resolved.model)
            return UNRESOLVED if self.names.is_premature(resolved.model) else None
        is_lenient = self._options.model_match is ModelMatch.LENIENT and not resolved.is_strict
        if constraints.model in change.lost and is_lenient:
            return constraints._replace(model=None)
        return None
