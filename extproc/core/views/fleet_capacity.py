"""The whole fleet as one server: its capacity, as it is reported to a parent picker, and its
health, as `GET /health` reports it to load balancers.

In the capacity, queued requests count as busy slots: a slot that becomes free here goes to one of
them first. If all endpoints serve the same models, their slots are common to them. Otherwise each
model has its own, as at a server in router mode.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from extproc.core.fleet.endpoint import ASSUMED_SLOTS, Endpoint
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.views.view import View

IDLE: Final = "ok"
BUSY: Final = "no slot available"
"""What llama-server itself said when all of its slots were busy, as long as it counted them."""
UNUSABLE: Final = "error"
OK: Final = 200
UNAVAILABLE: Final = 503


@dataclass(slots=True, kw_only=True)
class ModelCapacity:
    """The slots of all endpoints that serve a model. `busy` ones include its queued requests."""

    aliases: set[str] = field(default_factory=set)
    is_loaded: bool = False
    slots: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCapacity:
    """The slots of all endpoints that get requests. `busy` ones are leased, draining or foreign,
    and the queued requests count as one each, so they may be more than there are slots.

    `context_tokens` is the largest context of a slot, None if no endpoint reports it. With
    `has_common_slots` the counts of single models say nothing.
    """

    slots: int
    busy: int
    context_tokens: int | None
    has_common_slots: bool
    models: dict[str, ModelCapacity]


def fleet_capacity(view: View) -> FleetCapacity:
    """The capacity of the fleet now, of several pools that of the default one, as a parent's
    requests are for that. O(models of all endpoints + constraint queues)."""
    default = view.options.resolver.default_pool
    slots = busy = context_tokens = 0
    models: dict[str, ModelCapacity] = {}
    served: set[frozenset[str]] = set()
    has_pools = False
    for endpoint in view.fleet:
        account = view.slots_at(endpoint.address)
        if endpoint.spec.is_far or not (endpoint.is_pickable and account.slots):
            continue
        if endpoint.spec.pool != default:
            continue
        slots += account.slots
        busy += _busy(account)
        context_tokens = max(context_tokens, endpoint.context_tokens or 0)
        has_pools = has_pools or bool(account.model_pools)
        served.add(frozenset(model.name for model in endpoint.models))
        _add_models(models, endpoint, account)
    queued: Counter[str | None] = Counter()
    for queue in view.queue.constraint_queues():
        if queue.constraints.pool == default:
            queued[queue.constraints.model] += len(queue)
    for name, capacity in models.items():
        capacity.busy += queued[name]
    return FleetCapacity(
        slots=slots,
        busy=busy + view.queue.assignable_for(default),
        context_tokens=context_tokens or None,
        has_common_slots=len(served) <= 1 and not has_pools,
        models=models,
    )


def _add_models(
    models: dict[str, ModelCapacity], endpoint: Endpoint, account: EndpointSlots
) -> None:
    for model in endpoint.models:
        pool = account.pool(model.name)
        capacity = models.setdefault(model.name, ModelCapacity())
        capacity.aliases.update(model.aliases)
        capacity.is_loaded = capacity.is_loaded or model.is_loaded
        capacity.slots += pool.slots
        capacity.busy += _busy(pool)


def _busy(account: EndpointSlots) -> int:
    return account.leased_slots + account.foreign_slots


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHealth:
    """The slots of all endpoints that get requests: `idle` ones are available to the next request,
    `processing` ones are in use, or the tokens of a shared context do not suffice for them, or
    their machine wakes for requests that wait."""

    idle: int
    processing: int

    @property
    def is_usable(self) -> bool:
        """Whether any endpoint that gets requests has a slot, busy or not."""
        return self.idle + self.processing > 0

    @property
    def http_status(self) -> int:
        """200 if the fleet serves, also while all slots are busy: requests are queued then."""
        return OK if self.is_usable else UNAVAILABLE

    def as_json(self) -> bytes:
        """`status`, `slots_idle` and `slots_processing`."""
        status = UNUSABLE
        if self.is_usable:
            status = IDLE if self.idle else BUSY
        shown = {
            "status": status,
            "slots_idle": self.idle,
            "slots_processing": self.processing,
        }
        return json.dumps(shown).encode()


def fleet_health(view: View, pool: str | None = None) -> FleetHealth:
    """The health of the fleet now, or of one of its pools. O(endpoints + leases)."""
    idle = processing = 0
    for endpoint in view.fleet:
        if pool is not None and endpoint.spec.pool != pool:
            continue
        if endpoint.is_pickable and not endpoint.spec.is_far:
            counts = view.slot_counts(endpoint)
            account = view.slots_at(endpoint.address)
            usable = max(0, counts.idle - (account.slots - account.usable_slots))
            idle += usable
            processing += counts.total - usable
        elif endpoint.is_waited_for:
            processing += max(ASSUMED_SLOTS, view.slots_at(endpoint.address).slots)
    return FleetHealth(idle=idle, processing=processing)
