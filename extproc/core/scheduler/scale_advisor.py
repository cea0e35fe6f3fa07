"""Counts the requests for each model, and says how many servers it needs.

A request counts for the model that it names. If that name is unknown, or it names none, it counts
for the only model of the fleet, or, where there are several, for `ANY_MODEL`.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from extproc.core.recent import remember
from extproc.core.request import ResolvedRequest
from extproc.core.scaling.wanted import (
    Cause,
    Damping,
    ModelTraffic,
    Recommendation,
    ScaleOptions,
    ServerBounds,
    recommend,
)
from extproc.core.scheduler.in_flight import InFlightRequest
from extproc.core.scheduler.state import State
from extproc.core.scheduler.waits import ANY_MODEL
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.model_pools import slot_pool

MAX_DAMPINGS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScale:
    """The servers that a model needs (`wanted`), and why; `least` is its `min_servers`."""

    model: str
    wanted: int
    cause: Cause
    traffic: ModelTraffic
    least: int = 0


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


def model_key(resolved: ResolvedRequest) -> str:
    """The name under which a request counts, empty for none."""
    return resolved.constraints.model or resolved.model or ANY_MODEL


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
        """The servers that each model needs, by its name; only for the requests of `objective` if
        that is given. Requests for unknown `names` count for these."""
        if self._since is None:
            self._since = now
        counts = self._counts(objective, names, now)
        catalog = self._state.resolver.names.catalog
        bounds = {catalog.canonical_name(name): one for name, one in options.models.items()}
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
            found[model] = ModelScale(
                model=model,
                wanted=servers,
                cause=cause,
                traffic=traffic,
                least=limits.min_servers,
            )
        return found

    def arrived(self, resolved: ResolvedRequest, now: float) -> None:
        """A request arrived, whatever becomes of it. O(1)."""
        self._state.traffic.arrived(model_key(resolved), resolved.objective.name, now)

    def ended(self, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
        """A request gave its slots back. O(1). Errors, requests without a response and those for
        which a model was loaded first say nothing about the next one."""
        is_sample = not (run.answered_at is None or run.is_error or run.is_cold)
        is_sample = is_sample and end is not LeaseEnd.HANDED_OVER
        slot_s = (now - lease.opened_at) * lease.weight_slots
        self._state.traffic.ended(self.served_model(lease), slot_s, now, is_sample=is_sample)

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

    # Counting

    def _counts(
        self, objective: str | None, names: Collection[str], now: float
    ) -> dict[str, _Count]:
        counts = self._servers()
        only = next(iter(counts.values())) if len(counts) == 1 else None
        for name in names:
            counts.setdefault(self._state.resolver.names.catalog.canonical_name(name), _Count())
        self._slots = {
            name: one.slots / one.servers if one.servers else self._slots[name]
            for name, one in counts.items()
            if one.servers or name in self._slots
        }
        asked = _Count()
        self._count_requests(counts, asked, objective, now)
        if asked.queued_slots or asked.busy_slots or asked.arrivals_per_s:
            if only is not None:
                only.add(asked)
            else:
                counts[ANY_MODEL] = asked
        return counts

    def _servers(self) -> dict[str, _Count]:
        """The models that are served or can be, with their servers and their slots."""
        state = self._state
        catalog = state.resolver.names.catalog
        counts: dict[str, _Count] = {}
        for readings in state.resolver.names.loadable.values():
            for reading in readings.values():
                counts.setdefault(catalog.canonical_name(reading.name), _Count())
        for endpoint in state.fleet:
            if endpoint.is_removed:
                continue
            endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
            for reading in endpoint.models:
                count = counts.setdefault(catalog.canonical_name(reading.name), _Count())
                pool, _, is_loaded = slot_pool(endpoint, endpoint_slots, reading.name)
                count.busy_slots += pool.foreign_slots
                if endpoint.is_pickable and is_loaded and pool.slots:
                    count.servers += 1
                    count.slots += pool.usable_slots
        return counts

    def _count_requests(
        self, counts: dict[str, _Count], others: _Count, objective: str | None, now: float
    ) -> None:
        state = self._state
        catalog = state.resolver.names.catalog

        def count_of(name: str) -> _Count:
            return counts.get(catalog.canonical_name(name), others)

        for ticket in state.queue:
            if objective is None or ticket.objective.name == objective:
                count_of(model_key(ticket.resolved)).queued_slots += ticket.request.weight_slots
        for lease in state.ledger.leases():
            if objective is None or self._is_of(lease, objective):
                count_of(self.served_model(lease)).busy_slots += lease.weight_slots
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

    def served_model(self, lease: Lease) -> str:
        """The model that a lease's server runs for it; empty if it has several."""
        if lease.model is not None:
            return self._state.resolver.names.catalog.canonical_name(lease.model)
        endpoint = self._state.fleet.get(lease.address)
        if endpoint is None or len(endpoint.models) != 1:
            return ANY_MODEL
        return self._state.resolver.names.catalog.canonical_name(endpoint.models[0].name)
