"""Which models are wanted and pinned on each machine, and what changed.

The wanted models of a machine always fit together, whatever happens; the keeper ensures the same
for what is really loaded.
"""

from collections import Counter
from dataclasses import dataclass

from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.swaps import Swap, do_fit


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


class WantedModels:
    """Changes nothing by itself. Every call is O(models of a machine)."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._adopted: dict[str, KeptMachine] = {}
        self._pinned: dict[str, frozenset[str]] = {}
        self._retried: dict[str, set[str]] = {}
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

    def retried(self, machine: str) -> frozenset[str]:
        """The failed models that an operator wants again, until they are taken."""
        return frozenset(self._retried.get(machine, ()))

    def retry(self, machine: str, model: str) -> None:
        """An operator wants a failed model again."""
        self._retried.setdefault(machine, set()).add(model)

    def take_retried(self, machine: str) -> tuple[str, ...]:
        """The failed models that an operator wants again; each is returned once."""
        return tuple(self._retried.pop(machine, ()))

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

    def adopt(self, machine: KeptMachine) -> None:
        """Take over what a keeper that has just attached has loaded, or loads."""
        if self._adopted.get(machine.name) is machine:
            return
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

    def forget(self, machine: str) -> None:
        """The machine is gone; its pins stay for when it returns."""
        self._wanted.pop(machine, None)
        self._adopted.pop(machine, None)

    def add(
        self, machine: KeptMachine, model: str, swap: Swap, reason: str, now: float
    ) -> list[Change]:
        """Want a model in place of the swap's victims."""
        changes: list[Change] = []
        for victim in swap.victims:
            changes += self.remove(machine, victim, f"it made way for {model}", now)
        wanted = (*self.wanted(machine.name), model)
        assert do_fit(machine, wanted), "a swap makes enough memory free"
        self._wanted[machine.name] = wanted
        change = Change(machine=machine.name, model=model, is_load=True, reason=reason, at=now)
        return [*changes, self._recorded(change)]

    def remove(self, machine: KeptMachine, model: str, reason: str, now: float) -> list[Change]:
        """Want a model no more; returns nothing if it was not wanted."""
        wanted = self.wanted(machine.name)
        if model not in wanted:
            return []
        self._wanted[machine.name] = tuple(name for name in wanted if name != model)
        change = Change(machine=machine.name, model=model, is_load=False, reason=reason, at=now)
        return [self._recorded(change)]

    def _recorded(self, change: Change) -> Change:
        self.last_changes[change.machine, change.model] = change
        kind = "load" if change.is_load else "unload"
        self.changes_total[change.machine, change.model, kind] += 1
        return change
