"""The slots of a llama-server in router mode: each of its models is a process with its own.

Six free slots of one model do not help a request for another, so each model is a room with
an account of its own, beside the endpoint's account that counts them all. A model that is
not loaded is a room of one slot: the request that takes it makes the server load the model.
A lease whose model nobody could read is in no room, but counts for the endpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extproc.core.slots.endpoint_slots import Account

if TYPE_CHECKING:
    from extproc.core.observation import ModelReading, Observation
    from extproc.core.slots.lease import Lease

UNLOADED_SLOTS = 1


def has_rooms(models: tuple[ModelReading, ...]) -> bool:
    """Whether these are the models of a router: plain servers tell no slots by model."""
    return any(model.slots is not None or not model.is_loaded for model in models)


def observe_rooms(
    account: Account, observation: Observation, freed_by_sum: list[Lease]
) -> list[Lease]:
    """Take in a router's look, by model, after the account has; returns the draining leases that
    it shows free: those in rooms, and of `freed_by_sum` those in none."""
    freed = [lease for lease in freed_by_sum if lease.room not in account.rooms]
    freed_slots = sum(lease.weight_slots for lease in freed)
    for model in observation.models:
        room = account.rooms.get(model.name)
        if room is None:
            room = account.rooms[model.name] = Account(observation.began_at)
        # Whose client left while it is loading, may run there when it is loaded.
        room_slots, busy_slots = UNLOADED_SLOTS, None if model.is_loaded or model.is_loading else 0
        if model.is_loaded and model.slots is not None:
            room_slots = model.slots
            _fill(account, room, room_slots)
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
        freed += room.observe(part)
    names = {model.name for model in observation.models}
    for name in [name for name in account.rooms if name not in names]:
        if account.rooms[name].leases or account.rooms[name].reserved_for is not None:
            account.rooms[name].slots = 0
        else:
            del account.rooms[name]
    rooms = account.rooms.values()
    in_none = account.slots_in_no_room(observation) - freed_slots
    account.foreign_slots = max(0, sum(room.foreign_slots for room in rooms) - in_none)
    return freed


def close_rooms(account: Account) -> None:
    """Another process is there, and no router: the leases of the old one are in no room now."""
    for lease in account.leases.values():
        lease.room = ""
    account.rooms.clear()


def _fill(account: Account, room: Account, room_slots: int) -> None:
    """Who made the server load the model takes as many of its slots as it asked for."""
    for lease in room.leases.values():
        more = min(lease.asked_slots, room_slots) - lease.weight_slots
        if more > 0:
            lease.weight_slots += more
            room.leased_slots += more
            account.leased_slots += more
