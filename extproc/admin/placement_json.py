"""The machines with a keeper and the routers, and their models, as plain values: the fields of the
messages `Machine` and `PlacedModel`, and what `/status` shows.
"""

from collections.abc import Mapping
from typing import Any

from extproc.admin.dependencies import AdminDependencies
from extproc.core.placement.demand import NO_DEMAND, ModelDemand
from extproc.core.placement.machine import KeptMachine, KeptModel
from extproc.core.views.view import View


def machines_json(dependencies: AdminDependencies) -> list[dict[str, Any]]:
    """Every machine, sorted by name, with every field of `Machine`."""
    view = dependencies.dispatcher.view
    return [_machine(view, machine) for _, machine in sorted(dependencies.machines.items())]


def models_json(dependencies: AdminDependencies, now: float) -> list[dict[str, Any]]:
    """Every model on every machine, sorted by machine, with every field of `PlacedModel`."""
    view = dependencies.dispatcher.view
    machines = [machine for _, machine in sorted(dependencies.machines.items())]
    pools = {view.pool_of_machine(machine) for machine in machines}
    demands = {pool: view.demands(now, pool) for pool in pools}
    return [
        _model(dependencies, machine, model, demands[view.pool_of_machine(machine)], now)
        for machine in machines
        for model in machine.models.values()
    ]


def _machine(view: View, machine: KeptMachine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "memory_mb": machine.memory_mb,
        "used_mb": machine.used_mb,
        "is_connected": machine.is_connected,
        "version": machine.version,
        "is_router": machine.is_router,
        "max_models": machine.max_models,
        "used_models": machine.used_models,
        "power": machine.power.value,
        "pool": view.pool_of_machine(machine),
    }


def _model(
    dependencies: AdminDependencies,
    machine: KeptMachine,
    model: KeptModel,
    demands: Mapping[str | None, ModelDemand],
    now: float,
) -> dict[str, Any]:
    dispatcher, placement = dependencies.dispatcher, dependencies.placement
    queued = (demands.get(name, NO_DEMAND).waiting for name in (model.name, *model.aliases))
    status = machine.statuses[model.name]
    slots = None
    if model.address in dispatcher.fleet:
        slots = dispatcher.view.slots_at(model.address).pool(model.name)
    return {
        "machine": machine.name,
        "name": model.name,
        "aliases": model.aliases,
        "state": status.state.value,
        "state_age_s": max(0.0, now - status.since),
        "address": str(model.address),
        "memory_mb": model.memory_mb,
        "slots": slots.slots if slots is not None and machine.is_router else model.slots,
        "running": 0 if slots is None else len(slots.leases),
        "load_s": status.load_s,
        "exits": status.exits,
        "problem": status.problem,
        "detail": status.detail,
        "is_wanted": model.name in placement.placer.wanted(machine.name),
        "is_pinned": model.name in placement.placer.pinned(machine.name),
        "queued": sum(queued),
        "last_change": placement.last_change(machine, model.name, now),
        "pool": dispatcher.view.pool_of_machine(machine),
    }
