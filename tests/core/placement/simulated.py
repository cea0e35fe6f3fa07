"""Machines that obey the placer in simulated time: loads, drains, queues and requests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

from extproc.core.address import Address
from extproc.core.placement.demand import ModelDemand, ModelUse
from extproc.core.placement.machine import KeptMachine, KeptModel, KeptState
from extproc.core.placement.placer import Placer
from extproc.core.placement.swaps import PlacementOptions, do_fit

STEP_S = 0.25


def machine(name: str, memory_mb: int, **models: int) -> KeptMachine:
    """A machine with models of these sizes, which its keeper has reported as unloaded."""
    return KeptMachine(
        name=name,
        memory_mb=memory_mb,
        has_reported=True,
        models={
            model: KeptModel(
                name=model, address=Address.of("10.0.0.1", 5000 + number), memory_mb=size
            )
            for number, (model, size) in enumerate(models.items())
        },
    )


def set_state(
    one: KeptMachine, model: str, state: KeptState, now: float, **more: float | str
) -> None:
    one.statuses[model] = replace(one.statuses[model], state=state, since=now, **more)  # type: ignore[arg-type]


@dataclass
class Simulation:
    """`service_s` and `load_s` are the same for all models; a model has `slots` slots."""

    machines: dict[str, KeptMachine]
    options: PlacementOptions
    load_s: float
    service_s: float
    slots: int = 2
    now: float = 0.0
    queues: dict[str, deque[float]] = field(default_factory=dict)
    running: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    used_at: dict[tuple[str, str], float] = field(default_factory=dict)
    waits: list[tuple[str, float]] = field(default_factory=list)
    swapping_s: float = 0.0

    def __post_init__(self) -> None:
        self.placer = Placer(self.options)
        self.random = Random(1)

    def arrive(self, model: str) -> None:
        self.queues.setdefault(model, deque()).append(self.now)

    def use(self, one: KeptMachine, model: str) -> ModelUse:
        key = one.name, model
        running = len(self.running.get(key, ()))
        return ModelUse(
            running=running, idle_s=0.0 if running else self.now - self.used_at.get(key, -1e9)
        )

    def demands(self) -> dict[str, ModelDemand]:
        return {
            model: ModelDemand(
                waiting=len(queue),
                longest_wait_s=self.now - queue[0],
                waited_s=sum(self.now - at for at in queue),
            )
            for model, queue in self.queues.items()
            if queue
        }

    def step(self) -> None:
        """A quarter of a second: requests end, servers load and unload, requests begin."""
        self.now += STEP_S
        for key, ends in self.running.items():
            if ends:
                self.used_at[key] = self.now
            ends[:] = [end for end in ends if end > self.now]
        self.placer.step(self.machines, self.demands(), self.use, self.now)
        for one in self.machines.values():
            self._obey(one)
            self._serve(one)

    def _obey(self, one: KeptMachine) -> None:
        wanted = self.placer.wanted(one.name)
        assert do_fit(one, wanted), "what is wanted fits together"
        for model in one.models:
            state = one.statuses[model].state
            is_wanted = model in wanted
            if state is KeptState.LOADED and not is_wanted:
                set_state(one, model, KeptState.UNLOADING, self.now)
            elif state is KeptState.UNLOADING and not self.running.get((one.name, model)):
                set_state(one, model, KeptState.UNLOADED, self.now)
            elif state is KeptState.LOADING:
                if not is_wanted:
                    set_state(one, model, KeptState.UNLOADED, self.now)
                elif self.now - one.statuses[model].since >= self.load_s:
                    set_state(one, model, KeptState.LOADED, self.now, load_s=self.load_s)
        for model in wanted:
            if not one.statuses[model].state.holds_memory:
                holding = [n for n in one.models if one.statuses[n].state.holds_memory]
                fits = do_fit(one, (*holding, model))
                state = KeptState.LOADING if fits else KeptState.WAITING
                if one.statuses[model].state is not state:
                    set_state(one, model, state, self.now)
        assert one.used_mb <= one.memory_mb
        states = [one.statuses[name].state for name in one.models]
        if any(s in (KeptState.LOADING, KeptState.UNLOADING) for s in states):
            self.swapping_s += STEP_S

    def _serve(self, one: KeptMachine) -> None:
        for model, queue in self.queues.items():
            if model not in one.models or one.statuses[model].state is not KeptState.LOADED:
                continue
            ends = self.running.setdefault((one.name, model), [])
            while queue and len(ends) < self.slots:
                self.waits.append((model, self.now - queue.popleft()))
                ends.append(self.now + self.service_s)
                self.used_at[one.name, model] = self.now
