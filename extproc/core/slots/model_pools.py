"""The slots of a llama-server in router mode: each of its models is a process with its own.

Six free slots of one model do not help a request for another, so each model is a room with
an account of its own, beside the endpoint's account that counts them all. A model that is
not loaded is a room of one slot: the request that takes it makes the server load the model.
A lease whose model nobody could read is in no room, but counts for the endpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.slots.endpoint_slots import EndpointSlots

if TYPE_CHECKING:
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.observation import Observation
    from extproc.core.slots.lease import Lease
    from extproc.core.slots.model_loading import ModelLoadTracker

UNLOADED_SLOTS = 1


def observe_model_pools(
    endpoint_slots: EndpointSlots, observation: Observation, freed_by_sum: list[Lease]
) -> list[Lease]:
    """Take in a router's look, by model, after the account has; returns the draining leases that
    it shows free: those in rooms, and of `freed_by_sum` those in none."""
    freed = [lease for lease in freed_by_sum if lease.model_pool not in endpoint_slots.model_pools]
    freed_slots = sum(lease.weight_slots for lease in freed)
    for model in observation.models:
        pool = endpoint_slots.model_pools.get(model.name)
        if pool is None:
            pool = endpoint_slots.model_pools[model.name] = EndpointSlots(observation.began_at)
        # Whose client left while it is loading, may run there when it is loaded.
        room_slots, busy_slots = UNLOADED_SLOTS, None if model.is_loaded or model.is_loading else 0
        if model.is_loaded and model.slots is not None:
            room_slots = model.slots
            _fill(endpoint_slots, pool, room_slots)
        if model.is_loaded and observation.busy_slots is not None:
            busy_slots = model.busy_slots
        readings = tuple(one for one in observation.slot_readings if one.model == model.name)
        part = replace(
            observation,
            models=(),
            slots=room_slots,
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
    """Another process is there, and no router: the leases of the old one are in no room now."""
    for lease in endpoint_slots.leases.values():
        lease.model_pool = ""
    endpoint_slots.model_pools.clear()


def _fill(endpoint_slots: EndpointSlots, pool: EndpointSlots, room_slots: int) -> None:
    """Who made the server load the model takes as many of its slots as it asked for."""
    for lease in pool.leases.values():
        more = min(lease.asked_slots, room_slots) - lease.weight_slots
        if more > 0:
            lease.weight_slots += more
            pool.leased_slots += more
            endpoint_slots.leased_slots += more


class SlotPool(NamedTuple):
    """Where at an endpoint a request finds its slots: `model` is the room's name, if any; one
    that is not loaded comes after all that are."""

    slots: EndpointSlots
    model: str | None = None
    is_loaded: bool = True


def slot_pool(endpoint: Endpoint, endpoint_slots: EndpointSlots, model: str | None) -> SlotPool:
    """The slots for that model at an endpoint that suits."""
    if not endpoint_slots.model_pools:
        return SlotPool(endpoint_slots)
    if model is None:
        return SlotPool(
            endpoint_slots, is_loaded=False
        )  # which of its models it means nobody knows
    reading = endpoint.models_by_name.get(model)
    if reading is None:
        return SlotPool(endpoint_slots)
    return SlotPool(endpoint_slots.pool(reading.name), reading.name, reading.is_loaded)


def available_pool(
    endpoint: Endpoint, endpoint_slots: EndpointSlots, model: str | None, loads: ModelLoadTracker
) -> EndpointSlots | None:
    """Where a request for that model finds its slots there; None while it is to be loaded
    and somebody else loads it already."""
    pool, name, is_loaded = slot_pool(endpoint, endpoint_slots, model)
    is_open = is_loaded or name is None or loads.may_start(name)
    return pool if is_open else None
