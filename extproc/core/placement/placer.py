"""Decides which models are wanted on which machine.

Pure: demand and time are arguments.
"""

from collections.abc import Callable, Mapping
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
from extproc.core.placement.machine import KeptMachine, KeptState, Power
from extproc.core.placement.model_load import load_estimate_s
from extproc.core.placement.swaps import (
    MachineView,
    PlacementOptions,
    Swap,
    find_swap,
    forced_swap,
)
from extproc.core.placement.wanted_models import Change, PlacementError, WantedModels

NO_SERVERS: Final[Servers] = MappingProxyType({})

Uses = Callable[[KeptMachine, str], ModelUse]
"""The use of a model on a machine."""


class Placer(WantedModels):
    """Every call is O(machines x models)."""

    def __init__(self, options: PlacementOptions | None = None) -> None:
        super().__init__()
        self.options = options or PlacementOptions()
        self._servers: Servers = NO_SERVERS
        self._servers_at: dict[str, Servers] = {}
        """Those of the last step by machine."""

    def step(
        self,
        machines: Mapping[str, KeptMachine],
        demands: Demands,
        uses: Uses,
        now: float,
        servers: Servers = NO_SERVERS,
    ) -> list[Change]:
        """Decide again for the machines of one pool; returns what changed. `demands` and `servers`
        are by the names of models; a model that `servers` does not have needs one."""
        self._servers = servers
        self._servers_at |= dict.fromkeys(machines, servers)
        changes: list[Change] = []
        present = {name: one for name, one in machines.items() if one.takes_loads}
        for machine in present.values():
            self.adopt(machine)
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
        return changes

    def forget(self, machine: str) -> None:
        super().forget(machine)
        self._servers_at.pop(machine, None)

    # Operators

    def load(
        self, machine: KeptMachine, model: str, demands: Demands, uses: Uses, now: float
    ) -> list[Change]:
        """Load a model, whatever has to leave for it except pinned ones. Raises
        `PlacementError`."""
        self._check(machine)
        if machine.statuses[model].state is KeptState.FAILED:
            self.retry(machine.name, model)
        if model in self.wanted(machine.name):
            return []
        self._servers = self._servers_at.get(machine.name, NO_SERVERS)
        view = self._view(machine, uses, {machine.name: machine})
        swap = forced_swap(view, model, demands)
        if swap is None:
            raise PlacementError(
                f"{model} does not fit on {machine.name} beside the pinned models "
                f"({', '.join(sorted(view.pinned)) or 'none'})"
            )
        return self.add(machine, model, swap, "an operator loaded it", now)

    def unload(self, machine: KeptMachine, model: str, now: float) -> list[Change]:
        """Unload a model until somebody asks for it; ends its pin. Raises `PlacementError`."""
        self._check(machine)
        self.pin(machine, model, is_pinned=False)
        return self.remove(machine, model, "an operator unloaded it", now)

    def _check(self, machine: KeptMachine) -> None:
        if not machine.takes_loads:
            if machine.is_router:
                raise PlacementError(f"the router {machine.name} does not answer")
            if machine.power is Power.GOING_OFF:
                raise PlacementError(f"{machine.name} is being put to sleep; try again later")
            raise PlacementError(f"the keeper of {machine.name} is not connected")
        self.adopt(machine)

    # Steps

    def _drop_failed(self, machine: KeptMachine, now: float) -> list[Change]:
        """A failed model has no place until an operator loads it."""
        retried = self.retried(machine.name)
        return [
            change
            for name in self.wanted(machine.name)
            if machine.statuses[name].state is KeptState.FAILED and name not in retried
            for change in self.remove(machine, name, "its server failed", now)
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
                changes += self.remove(machine, name, reason, now)
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
                changes += self.add(machine, name, swap, "an operator pinned it", now)
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
        return self.add(best[1], model, best[2], reason, now)

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
