"""The slots of a llama-server in router mode: each of its models is a process with its own.

Six free slots of one model do not help a request for another, so each model is a room with
an account of its own, beside the endpoint's account that counts them all. A model that is
not loaded is a room of one slot: the request that takes it makes the server load the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extproc.core.account import Account

if TYPE_CHECKING:
    from extproc.core.lease import Lease
    from extproc.core.observation import ModelReading, Observation

UNLOADED_SLOTS = 1


def has_rooms(models: tuple[ModelReading, ...]) -> bool:
    """Whether these are the models of a router: plain servers tell no slots by model."""
    return any(model.slots is not None or not model.is_loaded for model in models)


def observe_rooms(account: Account, observation: Observation) -> list[Lease]:
    """Take in a router's look, by model; returns the draining leases that it shows free."""
    freed: list[Lease] = []
    for model in observation.models:
        room = account.rooms.get(model.name)
        if room is None:
            room = account.rooms[model.name] = Account(observation.began_at)
        told = model.slots if model.is_loaded and model.slots is not None else UNLOADED_SLOTS
        is_counted = model.busy_slots is not None and observation.busy_slots is not None
        part = replace(
            observation,
            models=(),
            slots=told,
            busy_slots=model.busy_slots if is_counted and model.is_loaded else None,
        )
        freed += room.observe(part)
    names = {model.name for model in observation.models}
    for name in [name for name in account.rooms if name not in names]:
        if account.rooms[name].leases or account.rooms[name].reserved_for is not None:
            account.rooms[name].slots = 0
        else:
            del account.rooms[name]
    account.foreign_slots = sum(room.foreign_slots for room in account.rooms.values())
    return freed
