"""Counts what requests ask of models, under the names that the fleet knows.

A request counts for the model that it names. If that name is unknown, or it names none, it counts
for the only model of the fleet, or, where there are several, for `ANY_MODEL`. Where pools are
configured, each name has that of its pool before it.
"""

from typing import Final

from extproc.core.constraints import NO_POOL, qualified
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.model_names import ModelNames
from extproc.core.learning.in_flight import InFlightRequest
from extproc.core.request import ResolvedRequest
from extproc.core.scaling.traffic import Traffic
from extproc.core.slots.lease import Lease, LeaseEnd

ANY_MODEL: Final = ""
"""The model of requests that name none, or none that is served."""


def model_key(resolved: ResolvedRequest) -> str:
    """The name under which a request counts, empty for none."""
    return resolved.constraints.model or resolved.model or ANY_MODEL


class TrafficCounter:
    """Every call is O(1)."""

    def __init__(self, fleet: Fleet, names: ModelNames, traffic: Traffic) -> None:
        self._fleet = fleet
        self._names = names
        self._traffic = traffic

    def request_arrived(self, resolved: ResolvedRequest, now: float) -> None:
        """A request arrived, whatever becomes of it."""
        objective = resolved.objective
        name = model_key(resolved)
        if objective.pool:
            name = qualified(objective.pool, name)
        self._traffic.arrived(name, objective.name, now)

    def lease_ended(self, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
        """A request gave its slots back. Errors, requests without a response and those for which a
        model was loaded first say nothing about the next one."""
        is_sample = not (run.answered_at is None or run.is_error or run.is_cold)
        is_sample = is_sample and end is not LeaseEnd.HANDED_OVER
        slot_s = (now - lease.opened_at) * lease.weight_slots
        self._traffic.request_ended(self.served_model(lease), slot_s, now, is_sample=is_sample)

    def served_model(self, lease: Lease) -> str:
        """The model that a lease's server runs for it; empty if it has several."""
        endpoint = self._fleet.get(lease.address)
        pool = NO_POOL if endpoint is None else endpoint.spec.pool
        if lease.model is not None:
            return qualified(pool, self._names.catalog.canonical_name(lease.model))
        if endpoint is None or len(endpoint.models) != 1:
            return qualified(pool, ANY_MODEL)
        return qualified(pool, self._names.catalog.canonical_name(endpoint.models[0].name))
