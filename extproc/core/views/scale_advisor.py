"""Says how many servers each model needs. See `traffic_counter` for the model that a request
counts for."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from extproc.core.bounds import is_held_back
from extproc.core.constraints import NO_POOL, qualified
from extproc.core.learning.traffic_counter import ANY_MODEL, model_key
from extproc.core.recent import remember
from extproc.core.scaling.wanted import (
    Cause,
    Damping,
    ModelTraffic,
    Recommendation,
    ScaleOptions,
    ServerBounds,
    recommend,
)
from extproc.core.slots.lease import Lease
from extproc.core.slots.model_pools import slot_pool
from extproc.core.state import State

MAX_DAMPINGS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScale:
    """The servers that a model needs (`wanted`), and why; `least` is its `min_servers`. `pool` is
    where, empty where no pools are configured."""

    model: str
    wanted: int
    cause: Cause
    traffic: ModelTraffic
    least: int = 0
    pool: str = NO_POOL


@dataclass(slots=True)
class _Count:
    """The sums for one model."""

    queued_slots: int = 0
    busy_slots: int = 0
    arrivals_per_s: float = 0.0
    servers: int = 0
    slots: int = 0
    asked_at: float = -inf

    def add(self, other: "_Count") -> None:
        """Count the requests of another one, too."""
        self.queued_slots += other.queued_slots
        self.busy_slots += other.busy_slots
        self.arrivals_per_s += other.arrivals_per_s
        self.asked_at = max(self.asked_at, other.asked_at)


class ScaleAdvisor:
    """Reads the state and remembers recent results. `read` is O(endpoints' models + leases +
    queued requests)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dampings: OrderedDict[tuple[str, str | None], Damping] = OrderedDict()
        self._slots: dict[str, float] = {}
        """The slots of a server of each model, as last seen."""
        self._since: float | None = None

    def read(
        self,
        options: ScaleOptions,
        now: float,
        objective: str | None = None,
        names: Collection[str] = (),
    ) -> dict[str, ModelScale]:
        """The servers that each model needs, by its name, with that of its pool before it where
        pools are configured; only for the requests of `objective` if that is given. Requests for
        unknown `names` count for these."""
        if self._since is None:
            self._since = now
        counts = self._counts(objective, names, now)
        bounds = {self.canonical(name): one for name, one in options.models.items()}
        target_wait_s = options.target_wait_s
        if objective is not None:
            named = self._state.resolver.objective_named(objective)
            target_wait_s = named.queue_s or target_wait_s
        found = {}
        for model, count in counts.items():
            limits = bounds.get(model, options.others)
            traffic = self._traffic(model, count, limits, now)
            wanted = recommend(traffic, limits, options, target_wait_s)
            present = min(count.servers, limits.max_servers)
            if now - self._since < options.down_after_s and wanted.servers < present:
                wanted = Recommendation(present, Cause.HELD)  # too little was seen yet
            damping = remember(self._dampings, (model, objective), Damping, MAX_DAMPINGS)
            servers = damping.settle(wanted.servers, options.down_after_s, now)
            cause = wanted.cause if servers == wanted.servers else Cause.HELD
            pool, name = self._split(model)
            found[model] = ModelScale(
                pool=pool,
                model=name,
                wanted=servers,
                cause=cause,
                traffic=traffic,
                least=limits.min_servers,
            )
        return found

    def _traffic(self, model: str, count: _Count, bounds: ServerBounds, now: float) -> ModelTraffic:
        assert self._since is not None
        asked_at = count.asked_at
        if count.servers:
            asked_at = max(asked_at, self._since)  # requests before our start are not known
        return ModelTraffic(
            queued_slots=count.queued_slots,
            busy_slots=count.busy_slots,
            arrivals_per_s=count.arrivals_per_s,
            service_s=self._state.traffic.service_s(model),
            slots=self._slots.get(model, bounds.slots),
            servers=count.servers,
            unasked_s=now - asked_at,
        )

    # Names

    def _split(self, name: str) -> tuple[str, str]:
        """The pool of a name and the rest, where pools are configured."""
        if not self._state.options.resolver.pools:
            return NO_POOL, name
        pool, _, model = name.partition("/")
        return pool, model

    def canonical(self, name: str) -> str:
        """One name for all that stand for one model in one pool."""
        pool, model = self._split(name)
        return qualified(pool, self._state.resolver.names.catalog.canonical_name(model))

    # Counting

    def _counts(
        self, objective: str | None, names: Collection[str], now: float
    ) -> dict[str, _Count]:
        counts = self._servers()
        models: dict[str, list[str]] = {}
        for name in counts:
            models.setdefault(self._split(name)[0], []).append(name)
        for name in names:
            counts.setdefault(self.canonical(name), _Count())
        self._slots = {
            name: one.slots / one.servers if one.servers else self._slots[name]
            for name, one in counts.items()
            if one.servers or name in self._slots
        }
        others: dict[str, _Count] = {}
        self._count_requests(counts, others, objective, now)
        for pool, asked in others.items():
            if asked.queued_slots or asked.busy_slots or asked.arrivals_per_s:
                served = models.get(pool, [])
                if len(served) == 1:
                    counts[served[0]].add(asked)
                else:
                    counts[qualified(pool, ANY_MODEL)] = asked
        return counts

    def _servers(self) -> dict[str, _Count]:
        """The models that are served or can be, with their servers and their slots."""
        state = self._state
        catalog = state.resolver.names.catalog
        counts: dict[str, _Count] = {}
        for machine, readings in state.resolver.names.loadable.items():
            pool_of_machine = state.resolver.pool_of_machine(machine)
            for reading in readings.values():
                name = qualified(pool_of_machine, catalog.canonical_name(reading.name))
                counts.setdefault(name, _Count())
        for endpoint in state.fleet:
            if endpoint.is_removed or endpoint.spec.is_far:
                continue
            endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
            for reading in endpoint.models:
                name = qualified(endpoint.spec.pool, catalog.canonical_name(reading.name))
                count = counts.setdefault(name, _Count())
                pool, _, is_loaded = slot_pool(endpoint, endpoint_slots, reading.name)
                count.busy_slots += pool.foreign_slots
                if endpoint.is_pickable and is_loaded and pool.slots:
                    count.servers += 1
                    count.slots += pool.usable_slots
        return counts

    def _count_requests(
        self,
        counts: dict[str, _Count],
        others: dict[str, _Count],
        objective: str | None,
        now: float,
    ) -> None:
        """Add requests to the counts of their models, and those of each pool that are for none of
        these to `others`."""
        state = self._state

        def count_of(name: str) -> _Count:
            known = counts.get(self.canonical(name))
            return others.setdefault(self._split(name)[0], _Count()) if known is None else known

        for ticket in state.queue:
            if ticket.held_by is not None or is_held_back(ticket.resolved.bounds):
                continue  # another server would not help
            if objective is None or ticket.objective.name == objective:
                name = qualified(ticket.request.pool, model_key(ticket.resolved))
                count_of(name).queued_slots += ticket.request.weight_slots
        for lease in state.ledger.leases():
            if objective is None or self._is_of(lease, objective):
                count_of(
                    self._state.traffic_counter.served_model(lease)
                ).busy_slots += lease.weight_slots
        for (name, of), rate in state.traffic.arrivals.items():
            if objective is None or of == objective:
                count = count_of(name)
                count.arrivals_per_s += rate.per_s(now)
                count.asked_at = max(count.asked_at, rate.last_at)
        if objective is None:
            for name, used_at in state.traffic.used_at.items():
                count = count_of(name)
                count.asked_at = max(count.asked_at, used_at)

    def _is_of(self, lease: Lease, objective: str) -> bool:
        run = self._state.in_flight.get(lease)
        return run is not None and run.objective.name == objective
