"""The load that requests for a model wait for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extproc.core.address import Address
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.swaps import ASSUMED_LOAD_S

LEAST_LEFT_S: Final = 0.5
"""A load that takes longer than usual is still expected to take this long."""
MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoad:
    """A load that is expected to end at `ready_at` (monotonic seconds), or without it one that has
    not begun: nobody has asked for the model, or others with work delay it (`is_delayed`).
    `where` names its machine, or those on which it could be loaded. With `is_wake`, that machine
    wakes first: how long it takes is not known before the first time."""

    model: str
    where: str
    ready_at: float | None = None
    is_delayed: bool = False
    is_wake: bool = False

    @property
    def subject(self) -> str:
        """What requests wait for, without the time."""
        if self.is_wake:
            return f"waits for {self.where} to wake"
        delay = " when others leave memory for it" if self.is_delayed else ""
        return f"waits for {self.model} to be loaded at {self.where}{delay}"

    def note(self, now: float) -> str:
        """The same words for operators and clients."""
        if self.ready_at is None:
            return self.subject
        return f"{self.subject}, about {max(0.0, self.ready_at - now):.0f} s"


def any_of(names: Sequence[str]) -> str:
    """Some of several names, in words."""
    if len(names) > MAX_NAMED:
        return f"one of {len(names)} machines"
    return " or ".join(names)


def first_load(
    model: str,
    machines: Mapping[str, KeptMachine],
    wanted: Callable[[str], Sequence[str]],
    is_new: Callable[[Address], bool],
    now: float,
) -> ModelLoad | None:
    """The load of a model that is expected to be ready first; None if it is loaded somewhere, or
    nobody loads it. `wanted` are the models that are wanted on a machine; `is_new` says whether
    requests could not go to its server yet: until then, what is loaded there is nearly ready."""
    found: list[tuple[float, str]] = []
    for name, machine in machines.items():
        if model not in wanted(name) or not machine.is_connected:
            continue
        status = machine.statuses[model]
        is_loaded = status.state is KeptState.LOADED
        if is_loaded and not is_new(machine.models[model].address):
            return None
        begun_at = status.since if status.state is KeptState.LOADING else now
        usual_at = now if is_loaded else begun_at + load_estimate_s(model, machine, machines)
        found.append((max(usual_at, now + LEAST_LEFT_S), name))
    if not found:
        return None
    ready_at, where = min(found)
    return ModelLoad(model=model, where=where, ready_at=ready_at)


def load_estimate_s(model: str, machine: KeptMachine, machines: Mapping[str, KeptMachine]) -> float:
    """What a load of the model takes: as the last time here, else on another machine."""
    own = machine.statuses[model].load_s
    if own is not None:
        return own
    others = (one.statuses[model].load_s for one in machines.values() if model in one.models)
    return next((load_s for load_s in others if load_s is not None), ASSUMED_LOAD_S)
