"""Which machines sleep, which of them queued requests want, and which may be put to sleep.

A machine is woken by the rule by which a model is loaded on a machine with a keeper: requests wait
that no server which is awake can have, or requests for a model wait, and fewer servers of it are
awake than `ScaleAdvisor` wants, or there are fewer than its `min_servers`. Where pools are
configured, all of this is about the default one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from extproc.core.bounds import is_held_back
from extproc.core.constraints import Constraints, qualified
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint, Intent, WakeOptions
from extproc.core.fleet.health import Health
from extproc.core.learning.traffic_counter import ANY_MODEL
from extproc.core.placement.demand import ModelDemand
from extproc.core.placement.model_load import LEAST_LEFT_S, ModelLoad
from extproc.core.state import State
from extproc.core.views.scale_advisor import ModelScale

Scale = Mapping[str, ModelScale]
Demands = Mapping[str | None, ModelDemand]


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingMachine:
    """The endpoints with one MAC address; the options are those of the first. `is_busy`: it may not
    sleep now. `used_at` is when its last request began, minus infinity before the first."""

    name: str
    endpoints: tuple[Endpoint, ...]
    options: WakeOptions
    is_serving: bool
    is_answering: bool
    is_busy: bool
    used_at: float


class WakeAdvisor:
    """For one moment. O(endpoints' models + queued requests + constraint queues x endpoints)."""

    def __init__(self, state: State, scale: Scale, demands: Demands) -> None:
        """`scale` is by model, `demands` by the names in queued requests."""
        self._state = state
        self._scale = scale
        self._demands = demands
        self._endpoints: dict[str, list[Endpoint]] = {}
        """By the MAC address of their machine."""
        self._default = state.options.resolver.default_pool
        self._fleet = [one for one in state.fleet if one.spec.pool == self._default]
        for endpoint in self._fleet:
            if endpoint.spec.wake is not None:
                self._endpoints.setdefault(endpoint.spec.wake.mac, []).append(endpoint)

    def machines(self) -> dict[str, SleepingMachine]:
        """The machines that can be woken, by MAC address."""
        return {mac: self._machine(found) for mac, found in self._endpoints.items()}

    def _machine(self, endpoints: Sequence[Endpoint]) -> SleepingMachine:
        state, first = self._state, endpoints[0]
        assert first.spec.wake is not None
        opened = (state.ledger.endpoint_slots(one.address).last_opened_at for one in endpoints)
        return SleepingMachine(
            name=state.fleet.name_of(first.address),
            endpoints=tuple(endpoints),
            options=first.spec.wake,
            is_serving=any(one.is_serving for one in endpoints),
            is_answering=any(one.is_answering for one in endpoints),
            is_busy=any(map(self._is_busy, endpoints)),
            used_at=max((at for at in opened if at is not None), default=-inf),
        )

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
        names = {self._scaled(reading.name) for reading in endpoint.models}
        advices = [self._scale[one] for one in names if one in self._scale and endpoint.is_pickable]
        return any(one.least and one.traffic.servers <= one.least for one in advices)

    def wanted(self, asleep: Iterable[str], waking: Collection[str]) -> set[str]:
        """Those of the MAC addresses `asleep`, the first ones first, whose machines should wake
        beside those that are `waking`."""
        candidates, coming, endpoints = list(asleep), list(waking), self._endpoints
        for constraints in self._unserved():
            if not any(self._could_serve(endpoints[mac], constraints) for mac in coming):
                could = (
                    mac for mac in candidates if self._could_serve(endpoints[mac], constraints)
                )
                coming += islice(could, 1)
        servers: dict[str | None, int] = {
            one.model: one.least for one in self._scale.values() if one.pool == self._default
        }
        asked: set[str | None] = set()
        for model in self._demands:
            name = None if model is None else self._canonical(model)
            advice = self._scale.get(qualified(self._default, name or ANY_MODEL))
            servers[name] = max(servers.get(name, 0), 1 if advice is None else advice.wanted)
            asked.add(name)
        for name, count in servers.items():
            missing = count - self._present(name) if count else 0
            missing -= sum(self._has_model(endpoints[mac], name) for mac in coming)
            others = (
                mac
                for mac in candidates
                if mac not in coming
                and self._has_model(endpoints[mac], name, is_asked=name in asked)
            )
            coming += list(islice(others, max(0, missing)))
        return set(coming) - set(waking)

    def _unserved(self) -> list[Constraints]:
        """What queued requests ask for that no server can have which gets requests, or is about to
        as a keeper loads its model."""
        loading = {name for name, load in self._state.loads.items() if load.ready_at is not None}
        awake = [one for one in self._fleet if one.is_pickable]
        return [
            queue.constraints
            for queue in self._state.queue.constraint_queues()
            if not is_held_back(queue.bounds)
            and queue.constraints.pool == self._default
            and (queue.constraints.model or "") not in loading
            and not any(is_eligible(queue.constraints, one) for one in awake)
        ]

    def _could_serve(self, endpoints: Iterable[Endpoint], constraints: Constraints) -> bool:
        """Whether an endpoint of a machine can serve such requests, or has not reported yet what it
        serves."""
        return any(
            not one.has_reported or is_eligible(constraints, one)
            for one in endpoints
            if one.intent is Intent.ACTIVE and not one.is_removed
        )

    def _present(self, model: str | None) -> int:
        """The servers of a model that get requests, or load it."""
        load = self._state.loads.get(model or "")
        return (load is not None and load.ready_at is not None) + sum(
            one.is_pickable and not one.spec.is_far and (model is None or self._has(one, model))
            for one in self._fleet
        )

    def _has_model(
        self, endpoints: Iterable[Endpoint], model: str | None, *, is_asked: bool = False
    ) -> bool:
        """The same for any request for a model, with `is_asked` for one that is queued."""
        return any(
            not one.has_reported
            or (
                (model is None or self._has(one, model))
                and (not is_asked or self._state.queue.has_any_for(one))
            )
            for one in endpoints
            if one.intent is Intent.ACTIVE and not one.is_removed
        )

    def wakes(self, waking: Mapping[str, float | None], now: float) -> dict[str, ModelLoad]:
        """What requests wait for while machines wake, by all names of the models that no other
        server has; `""` is for requests that name none. `waking` says when those of a MAC address
        are expected to serve, None if that is not known."""
        found: dict[str, ModelLoad] = {}
        served = [one for one in self._fleet if one.is_pickable and not one.spec.is_far]
        known = {name for one in served for name in one.models_by_name}
        for endpoint in self._fleet:
            wake = endpoint.spec.wake
            if wake is None or wake.mac not in waking:
                continue
            ready_at = waking[wake.mac]
            if ready_at is not None:
                ready_at = max(ready_at, now + LEAST_LEFT_S)
            names = {name for name in self._demands if name is not None}
            if endpoint.has_reported:
                names = set(endpoint.models_by_name)
            where = self._state.fleet.name_of(endpoint.address)
            for name in (names - known) | ({""} if not served else set()):
                load = ModelLoad(model=name, where=where, ready_at=ready_at, is_wake=True)
                found.setdefault(name, load)
        return found

    def _has(self, endpoint: Endpoint, model: str) -> bool:
        return any(self._canonical(name) == model for name in endpoint.models_by_name)

    def _scaled(self, name: str) -> str:
        """The name by which `scale` knows a model of the default pool."""
        return qualified(self._default, self._canonical(name))

    def _canonical(self, name: str) -> str:
        return self._state.resolver.names.catalog.canonical_name(name)
