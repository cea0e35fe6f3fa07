"""Decides which models are wanted on which machine.

Pure: demand and time are arguments. The wanted models of a machine always fit together, whatever
happens; the keeper ensures the same for what is really loaded.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from extproc.core.placement.demand import (
    NO_DEMAND,
    ONE_SERVER,
    Demands,
    ModelUse,
    ServerCounts,
    Servers,
)
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.model_load import ModelLoad
from extproc.core.placement.swaps import (
    ASSUMED_LOAD_S,
    MachineView,
    PlacementOptions,
    Swap,
    do_fit,
    find_swap,
    forced_swap,
)

NO_SERVERS: Final[Servers] = MappingProxyType({})
LEAST_LEFT_S: Final = 0.5
"""A load that takes longer than usual is still expected to take this long."""


class PlacementError(ValueError):
    """An operator's wish cannot be met; `str(error)` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A model that is wanted on a machine from now on, or not any more, and why."""

    machine: str
    model: str
    is_load: bool
    reason: str
    at: float


Uses = Callable[[KeptMachine, str], ModelUse]
"""The use of a model on a machine."""


class Placer:
    """Holds what is wanted. Every call is O(machines x models)."""

    def __init__(self, options: PlacementOptions | None = None) -> None:
        self.options = options or PlacementOptions()
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._adopted: dict[str, KeptMachine] = {}
        self._pinned: dict[str, frozenset[str]] = {}
        self._retried: dict[str, set[str]] = {}
        self._servers: Servers = NO_SERVERS
        self.changes_total: Counter[tuple[str, str, str]] = Counter()
        """Changes by machine, model and `load` or `unload`."""
        self.last_changes: dict[tuple[str, str], Change] = {}
        """The last change of each model on each machine."""

    def wanted(self, machine: str) -> tuple[str, ...]:
        """The models that are wanted there."""
        return self._wanted.get(machine, ())

    def pinned(self, machine: str) -> frozenset[str]:
        """The models that an operator pinned there."""
        return self._pinned.get(machine, frozenset())

    def take_retried(self, machine: str) -> tuple[str, ...]:
        """The failed models that an operator wants again; each is returned once."""
        return tuple(self._retried.pop(machine, ()))

    def forget(self, machine: str) -> None:
        """The machine is gone; its pins stay for when it returns."""
        self._wanted.pop(machine, None)
        self._adopted.pop(machine, None)

    def step(
        self,
        machines: Mapping[str, KeptMachine],
        demands: Demands,
        uses: Uses,
        now: float,
        servers: Servers = NO_SERVERS,
    ) -> list[Change]:
        """Decide again; returns what changed. `demands` and `servers` are by the names of models;
        a model that `servers` does not have needs one."""
        self._servers = servers
        changes: list[Change] = []
        present = {
            name: one
            for name, one in machines.items()
            if one.is_connected and one.has_reported and self._adopt(one)
        }
        for machine in present.values():
            changes += self._drop_failed(machine, now)
            changes += self._drop_idle(machine, present, demands, uses, now)
            changes += self._load_pinned(machine, demands, uses, now)
        waiting = [name for name, demand in demands.items() if demand.waiting > 0]
        for model in sorted(waiting, key=lambda name: (-demands[name].longest_wait_s, name)):
            changes += self._place(model, present, demands, uses, now)
        for model, count in servers.items():
            if count.least and model not in waiting:
                changes += self._place(model, present, demands, uses, now)
        for change in changes:
            self._record(change)
        return changes

    def load_of(
        self, model: str, machines: Mapping[str, KeptMachine], now: float
    ) -> ModelLoad | None:
        """The load of a model that is expected to be ready first; None if it is loaded somewhere,
        or nobody loads it."""
        found: list[tuple[float, str]] = []
        for name, machine in machines.items():
            if model not in self.wanted(name) or not machine.is_connected:
                continue
            status = machine.statuses[model]
            if status.state is KeptState.LOADED:
                return None
            begun_at = status.since if status.state is KeptState.LOADING else now
            usual_at = begun_at + load_estimate_s(model, machine, machines)
            found.append((max(usual_at, now + LEAST_LEFT_S), name))
        if not found:
            return None
        ready_at, where = min(found)
        return ModelLoad(model=model, where=where, ready_at=ready_at)

    # Operators

    def load(
        self, machine: KeptMachine, model: str, demands: Demands, uses: Uses, now: float
    ) -> list[Change]:
        """Load a model, whatever has to leave for it except pinned ones. Raises
        `PlacementError`."""
        self._check(machine)
        if machine.statuses[model].state is KeptState.FAILED:
            self._retried.setdefault(machine.name, set()).add(model)
        if model in self.wanted(machine.name):
            return []
        view = self._view(machine, uses, {machine.name: machine})
        swap = forced_swap(view, model, demands)
        if swap is None:
            raise PlacementError(
                f"{model} does not fit on {machine.name} beside the pinned models "
                f"({', '.join(sorted(view.pinned)) or 'none'})"
            )
        changes = self._apply(machine, model, swap, "an operator loaded it", now)
        for change in changes:
            self._record(change)
        return changes

    def unload(self, machine: KeptMachine, model: str, now: float) -> list[Change]:
        """Unload a model until somebody asks for it; ends its pin. Raises `PlacementError`."""
        self._check(machine)
        self._pinned[machine.name] = self.pinned(machine.name) - {model}
        changes = self._unwant(machine, model, "an operator unloaded it", now)
        for change in changes:
            self._record(change)
        return changes

    def pin(self, machine: KeptMachine, model: str, *, is_pinned: bool) -> None:
        """Keep a model loaded, or let it go again. Raises `PlacementError` if the pinned models
        would not fit."""
        pinned = self.pinned(machine.name) - {model}
        if is_pinned:
            pinned |= {model}
            known = [name for name in pinned if name in machine.models]
            if not do_fit(machine, known):
                raise PlacementError(
                    f"{model} does not fit on {machine.name} beside the other pinned models"
                )
        self._pinned[machine.name] = pinned

    def _check(self, machine: KeptMachine) -> None:
        if not (machine.is_connected and machine.has_reported):
            raise PlacementError(
                f"the router {machine.name} does not answer"
                if machine.is_router
                else f"the keeper of {machine.name} is not connected"
            )
        self._adopt(machine)

    # Steps

    def _adopt(self, machine: KeptMachine) -> bool:
        """Take over what a keeper that has just attached has loaded, or loads."""
        if self._adopted.get(machine.name) is machine:
            return True
        self._adopted[machine.name] = machine
        if machine.name not in self._pinned:  # the pins of a picker before this one
            pinned = [name for name in sorted(machine.pinned) if name in machine.models]
            if pinned and do_fit(machine, pinned):
                self._pinned[machine.name] = frozenset(pinned)
        wanted: list[str] = []
        states = {name: machine.statuses[name].state for name in machine.models}
        holding = [
            name
            for name, state in states.items()
            if state.holds_memory and state is not KeptState.UNLOADING
        ]
        waiting = [name for name, state in states.items() if state is KeptState.WAITING]
        for name in (*holding, *waiting):
            if do_fit(machine, (*wanted, name)):
                wanted.append(name)
        self._wanted[machine.name] = tuple(wanted)
        return True

    def _drop_failed(self, machine: KeptMachine, now: float) -> list[Change]:
        """A failed model has no place until an operator loads it."""
        retried = self._retried.get(machine.name, set())
        return [
            change
            for name in self.wanted(machine.name)
            if machine.statuses[name].state is KeptState.FAILED and name not in retried
            for change in self._unwant(machine, name, "its server failed", now)
        ]

    def _drop_idle(
        self,
        machine: KeptMachine,
        machines: Mapping[str, KeptMachine],
        demands: Demands,
        uses: Uses,
        now: float,
    ) -> list[Change]:
        changes: list[Change] = []
        for name in self.wanted(machine.name):
            model, status = machine.models[name], machine.statuses[name]
            if not model.ttl_s or name in self.pinned(machine.name):
                continue
            use = uses(machine, name)
            idle_s = min(use.idle_s, now - status.since)
            is_used = use.running > 0 or demands.get(name, NO_DEMAND).waiting > 0
            if self._others(machine, name, machines) < self._count(name).least:
                continue
            if status.state is KeptState.LOADED and not is_used and idle_s >= model.ttl_s:
                reason = f"it had no requests for {model.ttl_s:g} s"
                changes += self._unwant(machine, name, reason, now)
        return changes

    def _load_pinned(
        self, machine: KeptMachine, demands: Demands, uses: Uses, now: float
    ) -> list[Change]:
        changes: list[Change] = []
        for name in sorted(self.pinned(machine.name)):
            if name not in machine.models or name in self.wanted(machine.name):
                continue
            if machine.statuses[name].state is KeptState.FAILED:
                continue
            view = self._view(machine, uses, {machine.name: machine})
            swap = forced_swap(view, name, demands)
            if swap is not None:
                changes += self._apply(machine, name, swap, "an operator pinned it", now)
        return changes

    def _place(
        self,
        model: str,
        machines: Mapping[str, KeptMachine],
        demands: Demands,
        uses: Uses,
        now: float,
    ) -> list[Change]:
        """Load a model where that costs least: for the requests that wait for it, where no server
        of it holds their prompts, or as many servers are wanted; or because some are wanted without
        any request. Only the first server displaces models with work, and one that nobody asks for
        displaces none."""
        demand, count = demands.get(model, NO_DEMAND), self._count(model)
        places = [one for one in machines.values() if model in self.wanted(one.name)]
        if any(one.statuses[model].state is not KeptState.LOADED for one in places):
            return []  # it is coming
        fitting = [one for one in places if _holds(one, model, demand.context_tokens)]
        copies = len(fitting) + count.elsewhere
        wanted = max(count.least, count.wanted if demand.waiting else 0)
        if copies and len(places) + count.elsewhere >= wanted:
            return []
        best: tuple[tuple[float, float, str], KeptMachine, Swap] | None = None
        for machine in machines.values():
            if model not in machine.models or machine in places:
                continue
            if machine.statuses[model].state is KeptState.FAILED:
                continue
            if not _holds(machine, model, demand.context_tokens):
                continue
            view = self._view(machine, uses, machines)
            swap = find_swap(view, model, demands, self.options, now)
            if swap is None or (copies and swap.displaces_work):
                continue
            if swap.victims and not demand.waiting:
                continue
            key = (swap.cost_s, view.load_s(model) * (1 + len(swap.victims)), machine.name)
            if best is None or key < best[0]:
                best = key, machine, swap
        if best is None:
            return []
        requests = "1 request" if demand.waiting == 1 else f"{demand.waiting} requests"
        reason = f"{requests} waited, the first for {demand.longest_wait_s:.1f} s"
        if copies or not demand.waiting:
            reason = f"{wanted} of its servers are wanted"
        return self._apply(best[1], model, best[2], reason, now)

    def _apply(
        self, machine: KeptMachine, model: str, swap: Swap, reason: str, now: float
    ) -> list[Change]:
        changes: list[Change] = []
        for victim in swap.victims:
            changes += self._unwant(machine, victim, f"it made way for {model}", now)
        wanted = (*self.wanted(machine.name), model)
        assert do_fit(machine, wanted), "a swap makes enough memory free"
        self._wanted[machine.name] = wanted
        change = Change(machine=machine.name, model=model, is_load=True, reason=reason, at=now)
        return [*changes, change]

    def _unwant(self, machine: KeptMachine, model: str, reason: str, now: float) -> list[Change]:
        wanted = self.wanted(machine.name)
        if model not in wanted:
            return []
        self._wanted[machine.name] = tuple(name for name in wanted if name != model)
        return [Change(machine=machine.name, model=model, is_load=False, reason=reason, at=now)]

    def _record(self, change: Change) -> None:
        self.last_changes[change.machine, change.model] = change
        kind = "load" if change.is_load else "unload"
        self.changes_total[change.machine, change.model, kind] += 1

    def _view(
        self, machine: KeptMachine, uses: Uses, machines: Mapping[str, KeptMachine]
    ) -> MachineView:
        return MachineView(
            machine=machine,
            wanted=self.wanted(machine.name),
            pinned=self.pinned(machine.name),
            uses={name: uses(machine, name) for name in machine.models},
            loads_s={name: load_estimate_s(name, machine, machines) for name in machine.models},
            surplus=frozenset(
                name
                for name in self.wanted(machine.name)
                if self._others(machine, name, machines)
                >= max(1, self._count(name).wanted, self._count(name).least)
            ),
        )

    def _count(self, model: str) -> ServerCounts:
        return self._servers.get(model, ONE_SERVER)

    def _others(self, machine: KeptMachine, model: str, machines: Mapping[str, KeptMachine]) -> int:
        """The servers of a model that serve it besides this machine's."""
        return self._count(model).elsewhere + sum(
            model in self.wanted(one.name) and one.statuses[model].state is KeptState.LOADED
            for one in machines.values()
            if one is not machine
        )


def _holds(machine: KeptMachine, model: str, context_tokens: int) -> bool:
    """Whether a slot of it holds prompts of this length; assumed where that is not known."""
    known = machine.models[model].slot_tokens
    return not known or known >= context_tokens


def load_estimate_s(model: str, machine: KeptMachine, machines: Mapping[str, KeptMachine]) -> float:
    """What a load of the model takes: as the last time here, else on another machine."""
    own = machine.statuses[model].load_s
    if own is not None:
        return own
    others = (one.statuses[model].load_s for one in machines.values() if model in one.models)
    return next((load_s for load_s in others if load_s is not None), ASSUMED_LOAD_S)
