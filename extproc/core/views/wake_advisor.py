"""Which machines sleep, which of them queued requests want, and which may be put to sleep.

A machine is woken by the rule by which a model is loaded on a machine with a keeper: requests wait
that no server which is awake can have, or requests for a model wait, and fewer servers of it are
awake than `ScaleAdvisor` wants, or there are fewer than its `min_servers`. A machine with a keeper
counts for all models that it can load; once it is awake, the placement loads them. Where pools are
configured, requests for one wake the machines of its own endpoints only; a machine may have some of
several.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final

from extproc.core.bounds import is_held_back
from extproc.core.constraints import FIRST_TIER, Constraints, qualified
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint, Intent, WakeOptions
from extproc.core.fleet.health import Health
from extproc.core.learning.traffic_counter import ANY_MODEL
from extproc.core.placement.demand import ModelDemand
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.model_load import LEAST_LEFT_S, ModelLoad
from extproc.core.queue.constraint_queue import ConstraintQueue
from extproc.core.state import State
from extproc.core.views.scale_advisor import ModelScale

PLACED_S: Final = 5.0
"""A request that a machine which is awake could load a model for wakes no other one before."""
_CHANGING: Final = {
    KeptState.WAITING,
    KeptState.LOADING,
    KeptState.UNLOADING,
    KeptState.RESTARTING,
}
Scale = Mapping[str, ModelScale]
Demands = Mapping[str, Mapping[str | None, ModelDemand]]
Asked = tuple[str, str | None]
"""A pool, empty where none are configured, and the one name of a model in it, None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingMachine:
    """The endpoints and the keepers with one MAC address; the options are those of the first.
    `is_busy`: it may not sleep now. `used_at` is when its last request began, minus infinity before
    the first."""

    name: str
    endpoints: tuple[Endpoint, ...]
    keepers: tuple[KeptMachine, ...]
    options: WakeOptions
    is_serving: bool
    is_answering: bool
    is_busy: bool
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingKeeper:
    """A machine with a keeper that may sleep, and how. `used_at` is when a request of one of its
    models ran last, minus infinity before the first, and `is_pinned` whether an operator pinned
    one of them."""

    machine: KeptMachine
    options: WakeOptions
    used_at: float = -inf
    is_pinned: bool = False


@dataclass(slots=True)
class _Group:
    """What has one MAC address. `kept_endpoints` are models that the keepers have loaded."""

    options: WakeOptions
    endpoints: list[Endpoint] = field(default_factory=list)
    keepers: list[SleepingKeeper] = field(default_factory=list)
    kept_endpoints: list[Endpoint] = field(default_factory=list)

    @property
    def all_endpoints(self) -> list[Endpoint]:
        return [*self.endpoints, *self.kept_endpoints]

    @property
    def open_endpoints(self) -> Iterator[Endpoint]:
        """Those of its own that an operator has neither drained, disabled nor removed. What keepers
        serve counts by what they can load."""
        return (one for one in self.endpoints if one.intent is Intent.ACTIVE and not one.is_removed)


class WakeAdvisor:
    """For one moment. O(endpoints' models + queued requests + constraint queues x endpoints)."""

    def __init__(
        self, state: State, scale: Scale, demands: Demands, kept: Iterable[SleepingKeeper] = ()
    ) -> None:
        """`scale` is by model, `demands` by pool and by the names in queued requests; `kept` are
        the machines with a keeper that may sleep."""
        self._state = state
        self._scale = scale
        self._demands = demands
        self._waits_s: dict[Asked, float] = {}
        """How long requests have waited at most."""
        for pool, of_pool in demands.items():
            for model, demand in of_pool.items():
                asked = pool, None if model is None else self._canonical(model)
                self._waits_s[asked] = max(self._waits_s.get(asked, 0.0), demand.longest_wait_s)
        self._groups: dict[str, _Group] = {}
        """By the MAC address of their machine."""
        for endpoint in state.fleet:
            if endpoint.spec.wake is not None:
                self._group(endpoint.spec.wake).endpoints.append(endpoint)
        for one in kept:
            group = self._group(one.options)
            group.keepers.append(one)
            addresses = [model.address for model in one.machine.models.values()]
            found = (state.fleet.get(address) for address in addresses)
            group.kept_endpoints += [endpoint for endpoint in found if endpoint is not None]

    def _group(self, options: WakeOptions) -> _Group:
        return self._groups.setdefault(options.mac, _Group(options))

    def machines(self) -> dict[str, SleepingMachine]:
        """The machines that can be woken, by MAC address."""
        return {mac: self._machine(group) for mac, group in self._groups.items()}

    def _machine(self, group: _Group) -> SleepingMachine:
        state, endpoints, keepers = self._state, group.all_endpoints, group.keepers
        opened = (state.ledger.endpoint_slots(one.address).last_opened_at for one in endpoints)
        used = [at for at in opened if at is not None] + [one.used_at for one in keepers]
        connected = [one.machine for one in keepers if one.machine.is_connected]
        return SleepingMachine(
            name=self._name_of(group),
            endpoints=tuple(endpoints),
            keepers=tuple(one.machine for one in keepers),
            options=group.options,
            is_serving=any(one.is_serving for one in endpoints)
            or any(one.has_reported for one in connected),
            is_answering=bool(connected) or any(one.is_answering for one in endpoints),
            is_busy=any(map(self._is_busy, endpoints)) or any(map(self._is_keeper_busy, keepers)),
            used_at=max(used, default=-inf),
        )

    def _name_of(self, group: _Group) -> str:
        if group.keepers:
            return group.keepers[0].machine.name
        return self._state.fleet.name_of(group.endpoints[0].address)

    def _is_keeper_busy(self, keeper: SleepingKeeper) -> bool:
        """Whether a machine must stay awake for what its keeper does, or is about to: a model
        comes or goes, an operator has pinned one, or requests wait that it could serve."""
        states = {status.state for status in keeper.machine.statuses.values()}
        if keeper.is_pinned or states & _CHANGING:
            return True
        return any(self._could_load(keeper.machine, one.constraints) for one in self._queues())

    def _is_busy(self, endpoint: Endpoint) -> bool:
        """Whether its machine must stay awake: something runs there or waits for it, an operator
        has drained or disabled it, its state is not known, or it is one of `min_servers`."""
        slots = self._state.ledger.endpoint_slots(endpoint.address)
        if slots.leases or slots.foreign_slots or endpoint.intent is not Intent.ACTIVE:
            return True
        if endpoint.health is Health.LOADING or (endpoint.is_serving and not endpoint.is_fresh):
            return True
        if self._state.queue.has_any_for(endpoint):
            return True
        pool = endpoint.spec.pool
        names = {qualified(pool, self._canonical(reading.name)) for reading in endpoint.models}
        advices = [self._scale[one] for one in names if one in self._scale and endpoint.is_pickable]
        return any(one.least and one.traffic.servers <= one.least for one in advices)

    def wanted(self, asleep: Iterable[str], waking: Collection[str]) -> set[str]:
        """Those of the MAC addresses `asleep`, the first ones first, whose machines should wake
        beside those that are `waking`."""
        candidates, coming, groups = list(asleep), list(waking), self._groups
        for constraints in self._unserved():
            if not any(self._could_serve(groups[mac], constraints) for mac in coming):
                could = (mac for mac in candidates if self._could_serve(groups[mac], constraints))
                coming += islice(could, 1)
        servers: dict[Asked, int] = {
            (one.pool, one.model): one.least for one in self._scale.values()
        }
        waiting = self._waits_s.keys()
        for asked in waiting:
            advice = self._scale.get(qualified(asked[0], asked[1] or ANY_MODEL))
            servers[asked] = max(servers.get(asked, 0), 1 if advice is None else advice.wanted)
        for asked, count in servers.items():
            missing = count - self._present(asked) if count else 0
            missing -= sum(self._has_model(groups[mac], asked) for mac in coming)
            others = (
                mac
                for mac in candidates
                if mac not in coming
                and self._has_model(groups[mac], asked, is_asked=asked in waiting)
            )
            coming += list(islice(others, max(0, missing)))
        return set(coming) - set(waking)

    def _unserved(self) -> list[Constraints]:
        """What queued requests ask for that no server can have which gets requests, or is about to
        as a keeper loads its model."""
        awake = [one for one in self._state.fleet if one.is_pickable]
        return [
            queue.constraints
            for queue in self._queues()
            if not self._is_coming(queue.constraints.pool, queue.constraints.model)
            and not any(is_eligible(queue.constraints, one) for one in awake)
        ]

    def _queues(self) -> Iterator[ConstraintQueue]:
        """Those whose requests only wait for a server."""
        queues = self._state.queue.constraint_queues()
        return (queue for queue in queues if not is_held_back(queue.bounds))

    def _is_coming(self, pool: str, model: str | None) -> bool:
        """Whether a machine that is awake loads it for queued requests, or is about to: soon, or
        others delay it."""
        loads = self._state.loads
        load = loads.get(qualified(pool, model or ""))
        if load is not None and load.ready_at is not None:
            return True
        if load is None and (model is not None or not self._has_loads(pool)):
            return False
        name = None if model is None else self._canonical(model)
        return self._waits_s.get((pool, name), 0.0) < PLACED_S

    def _has_loads(self, pool: str) -> bool:
        """Whether there are models of a pool that are loaded, or could be."""
        return any(name.startswith(qualified(pool, "")) for name in self._state.loads)

    def _could_serve(self, group: _Group, constraints: Constraints) -> bool:
        """Whether an endpoint of a machine can serve such requests, or has not reported yet what it
        serves, or its keeper can load a model for them."""
        return any(
            is_eligible(constraints, one) if one.has_reported else one.spec.pool == constraints.pool
            for one in group.open_endpoints
        ) or any(self._could_load(one.machine, constraints) for one in group.keepers)

    def _could_load(self, machine: KeptMachine, constraints: Constraints) -> bool:
        """Whether a keeper has a model for such requests, or has not said yet which it has."""
        allowed = constraints.allowed
        is_for_it = self._pool_of(machine) == constraints.pool
        return (is_for_it and constraints.tier == FIRST_TIER) and (
            not machine.models
            or any(
                (constraints.model in (None, model.name) or constraints.model in model.aliases)
                and (allowed is None or model.address in allowed)
                and (not model.slot_tokens or model.slot_tokens >= constraints.context_tokens)
                for model in machine.models.values()
            )
        )

    def _present(self, asked: Asked) -> int:
        """The servers of a model that get requests, or load it."""
        return self._is_coming(*asked) + sum(
            one.is_pickable and not one.spec.is_far and self._has(one, asked)
            for one in self._state.fleet
        )

    def _has_model(self, group: _Group, asked: Asked, *, is_asked: bool = False) -> bool:
        """The same for any request for a model, with `is_asked` for one that is queued."""
        return any(
            one.spec.pool == asked[0]
            if not one.has_reported
            else self._has(one, asked) and (not is_asked or self._state.queue.has_any_for(one))
            for one in group.open_endpoints
        ) or any(self._keeps(one.machine, asked, is_asked=is_asked) for one in group.keepers)

    def _keeps(self, machine: KeptMachine, asked: Asked, *, is_asked: bool) -> bool:
        """Whether its keeper can load a model, with `is_asked` for a queued request."""
        pool, model = asked
        if self._pool_of(machine) != pool:
            return False
        is_listed = model is None or not machine.models
        if not (is_listed or any(self._canonical(name) == model for name in machine.names)):
            return False
        return not is_asked or any(
            self._could_load(machine, queue.constraints) for queue in self._queues()
        )

    def wakes(self, waking: Mapping[str, float | None], now: float) -> dict[str, ModelLoad]:
        """What requests wait for while machines wake, by all names of the models that no other
        server has; `""` is for requests that name none. Where pools are configured, names have that
        of their pool before them. `waking` says when those of a MAC address are expected to serve,
        None if that is not known."""
        found: dict[str, ModelLoad] = {}
        served = [one for one in self._state.fleet if one.is_pickable and not one.spec.is_far]
        known = {(one.spec.pool, name) for one in served for name in one.models_by_name}
        known |= {(one.spec.pool, "") for one in served}
        for mac, expected_at in waking.items():
            group = self._groups[mac]
            ready_at = None if expected_at is None else max(expected_at, now + LEAST_LEFT_S)
            for pool, name in self._names(group) - known:
                load = ModelLoad(
                    model=name, where=self._name_of(group), ready_at=ready_at, is_wake=True
                )
                found.setdefault(qualified(pool, name), load)
        return found

    def _names(self, group: _Group) -> set[tuple[str, str]]:
        """All names of the models that a machine serves or can load, with their pools; those that
        are asked for, where that is not known. `""` stands for any."""
        lists = [
            *(
                (one.spec.pool, one.models_by_name.keys() if one.has_reported else None)
                for one in group.endpoints
            ),
            *((self._pool_of(one.machine), one.machine.names or None) for one in group.keepers),
        ]
        return {
            (pool, name)
            for pool, names in lists
            for name in (*(self._asked_in(pool) if names is None else names), "")
        }

    def _asked_in(self, pool: str) -> Iterator[str]:
        return (name for name in self._demands.get(pool, ()) if name is not None)

    def _pool_of(self, machine: KeptMachine) -> str:
        return machine.pool or self._state.resolver.pool_of_machine(machine.name)

    def _has(self, endpoint: Endpoint, asked: Asked) -> bool:
        pool, model = asked
        return endpoint.spec.pool == pool and (
            model is None or any(self._canonical(name) == model for name in endpoint.models_by_name)
        )

    def _canonical(self, name: str) -> str:
        return self._state.resolver.names.catalog.canonical_name(name)
