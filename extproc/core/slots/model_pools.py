"""Model pools: the slots of a llama-server in router mode, where each model is a process.

Free slots of one model are of no use to a request for another. So each model has its own pool,
beside the endpoint's slots, which count all of them. A model that is not loaded is a pool of one
slot: the request that takes it makes the server load the model. Where the server does not load it
by itself, it is a pool of none. A lease whose model could not be
read is in no pool, but counts for the endpoint.
"""

from dataclasses import replace

from extproc.core.fleet.endpoint import Endpoint
from extproc.core.observation import Observation
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import Lease
from extproc.core.slots.model_loading import ModelLoadTracker

UNLOADED_SLOTS = 1


def observe_model_pools(
    endpoint_slots: EndpointSlots, observation: Observation, freed_by_sum: list[Lease]
) -> list[Lease]:
    """Apply a router's scrape by model, after it was applied to the endpoint's slots; returns the
    draining leases that are proved over: those in pools, and of `freed_by_sum` those in none."""
    freed = [lease for lease in freed_by_sum if lease.model_pool not in endpoint_slots.model_pools]
    freed_slots = sum(lease.weight_slots for lease in freed)
    for model in observation.models:
        pool = endpoint_slots.model_pools.get(model.name)
        if pool is None:
            pool = endpoint_slots.model_pools[model.name] = EndpointSlots(observation.began_at)
        # A request whose client left while the model is loading may run once it is loaded.
        pool_slots, busy_slots = UNLOADED_SLOTS, None if model.is_loaded or model.is_loading else 0
        if model.is_closed:
            pool_slots = 0
        if model.is_loaded and model.slots is not None:
            pool_slots = model.slots
            _fill(endpoint_slots, pool, pool_slots)
        if model.is_loaded and observation.busy_slots is not None:
            busy_slots = model.busy_slots
        readings = tuple(one for one in observation.slot_readings if one.model == model.name)
        part = replace(
            observation,
            models=(),
            slots=pool_slots,
            busy_slots=busy_slots,
            slot_readings=readings,
        )
        freed += pool.observe(part)
    names = {model.name for model in observation.models}
    for name in [name for name in endpoint_slots.model_pools if name not in names]:
        if (
            endpoint_slots.model_pools[name].leases
            or endpoint_slots.model_pools[name].reservation is not None
        ):
            endpoint_slots.model_pools[name].slots = 0
        else:
            del endpoint_slots.model_pools[name]
    pools = endpoint_slots.model_pools.values()
    in_none = endpoint_slots.slots_in_no_pool(observation) - freed_slots
    endpoint_slots.foreign_slots = max(0, sum(pool.foreign_slots for pool in pools) - in_none)
    return freed


def close_model_pools(endpoint_slots: EndpointSlots) -> None:
    """A new process that is no router replaced it: the old leases are in no pool now."""
    for lease in endpoint_slots.leases.values():
        lease.model_pool = ""
    endpoint_slots.model_pools.clear()


def _fill(endpoint_slots: EndpointSlots, pool: EndpointSlots, pool_slots: int) -> None:
    """A request that made the server load the model takes the slots that it asked for."""
    for lease in pool.leases.values():
        more = min(lease.asked_slots, pool_slots) - lease.weight_slots
        if more > 0:
            lease.weight_slots += more
            pool.leased_slots += more
            endpoint_slots.leased_slots += more


SlotPool = tuple[EndpointSlots, str | None, bool]
"""The slots for a request at an endpoint, the name of their model pool, if any, and whether its
model is loaded: pools of loaded models are preferred."""


def slot_pool(endpoint: Endpoint, endpoint_slots: EndpointSlots, model: str | None) -> SlotPool:
    """The slots for that model at an eligible endpoint."""
    if not endpoint_slots.model_pools:
        return endpoint_slots, None, True
    if model is None:
        return endpoint_slots, None, False  # the request's model is not known
    reading = endpoint.models_by_name.get(model)
    if reading is None:
        return endpoint_slots, None, True
    return endpoint_slots.pool(reading.name), reading.name, reading.is_loaded


def available_pool(
    endpoint: Endpoint, endpoint_slots: EndpointSlots, model: str | None, loads: ModelLoadTracker
) -> EndpointSlots | None:
    """The slots for that model at an endpoint; None if the model must be loaded and another
    endpoint is loading it."""
    pool, name, is_loaded = slot_pool(endpoint, endpoint_slots, model)
    is_open = is_loaded or name is None or loads.may_start(name)
    return pool if is_open else None
