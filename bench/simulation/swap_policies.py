"""Who is loaded: Coxswain's placer, what others do, and one that knows the future."""

from abc import ABC, abstractmethod
from math import inf

from bench.simulation.swap_machine import SwapMachine
from extproc.core.address import Address
from extproc.core.placement.demand import ModelDemand, ModelUse
from extproc.core.placement.machine import KeptMachine, KeptModel, KeptState, KeptStatus
from extproc.core.placement.placer import Placer
from extproc.core.placement.swaps import PlacementOptions


class SwapPolicy(ABC):
    """Decides after each event."""

    is_first_come = False
    tick_s = inf
    """It also decides this long after the last time, while requests wait."""

    @abstractmethod
    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        """The models that should be loaded from now on."""


class FirstCome(SwapPolicy):
    """llama-swap: requests are served in their order, so each change of the model swaps."""

    is_first_come = True

    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        waiting = machine.waiting()
        if not waiting or waiting[0] in machine.wanted:
            return machine.wanted
        return make_way(machine, waiting[0], {*machine.wanted})


class LeastRecent(SwapPolicy):
    """llama.cpp's router: a model with requests is never the one that leaves."""

    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        wanted = machine.wanted
        for model in machine.waiting():
            if model in wanted:
                continue
            idle = {
                one
                for one in wanted
                if one in machine.loaded_at
                and not machine.running.get(one)
                and not machine.queues.get(one)
            }
            found = make_way(machine, model, idle)
            if model not in found:
                break
            machine.wanted = wanted = found
        return wanted


class Coxswain(SwapPolicy):
    """The placer of the core."""

    tick_s = 0.25

    def __init__(self, machine: SwapMachine, options: PlacementOptions) -> None:
        self._placer = Placer(options)
        self._kept = KeptMachine(
            name="m",
            memory_mb=machine.memory,
            has_reported=True,
            models={
                str(number): KeptModel(
                    name=str(number),
                    address=Address.of("10.0.0.1", 5000 + number),
                    memory_mb=model.memory,
                    slots=model.slots,
                )
                for number, model in enumerate(machine.models)
            },
        )
        self._known: dict[int, float] = {}

    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        for number in range(len(machine.models)):
            self._report(machine, number)
        demands = {}
        for model in machine.waiting():
            waits = machine.waits_of(model)
            demands[str(model)] = ModelDemand(
                waiting=len(waits), longest_wait_s=waits[0], waited_s=sum(waits)
            )

        def use(_: KeptMachine, name: str) -> ModelUse:
            model = int(name)
            running = len(machine.running.get(model, ()))
            idle_s = 0.0 if running else machine.now - machine.used_at.get(model, -inf)
            return ModelUse(running=running, idle_s=idle_s)

        self._placer.step({"m": self._kept}, demands, use, machine.now)
        return tuple(int(name) for name in self._placer.wanted("m"))

    def _report(self, machine: SwapMachine, model: int) -> None:
        is_wanted = model in machine.wanted
        since, state = 0.0, KeptState.WAITING if is_wanted else KeptState.UNLOADED
        if model in machine.loaded_at:
            since = machine.loaded_at[model]
            state = KeptState.LOADED if is_wanted else KeptState.UNLOADING
            self._known[model] = machine.models[model].load_s
        elif model in machine.ready_at:
            since = machine.ready_at[model] - machine.models[model].load_s
            state = KeptState.LOADING
        status = KeptStatus(state=state, since=since, load_s=self._known.get(model))
        self._kept.statuses[str(model)] = status


class Foresight(SwapPolicy):
    """Knows what will come: plays each choice against it to the end, and takes the best."""

    MAX_CHOICES = 3
    PAUSE_S = 5.0
    """Between two decisions, where something goes on anyway: each is played many times."""

    def __init__(self, base: SwapPolicy) -> None:
        """`base` decides what follows a choice."""
        self._decided_at = -inf
        self._base = base

    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        waiting = [model for model in machine.waiting() if model not in machine.wanted]
        is_going_on = machine.next_event_at < inf
        if not waiting or (is_going_on and machine.now - self._decided_at < self.PAUSE_S):
            return machine.wanted
        self._decided_at = machine.now
        usual = self._base.decide(machine.copy())
        choices = [usual]
        for model in waiting[: self.MAX_CHOICES]:
            found = make_way(machine, model, {*machine.wanted})
            if model in found:
                choices.append(found)
        best, cost = usual, inf
        for choice in dict.fromkeys(choices):
            found_s = _played(machine, choice, self._base)
            if found_s < cost - 1e-9:
                best, cost = choice, found_s
        return best


class RentOrBuy(SwapPolicy):
    """Swaps when those that wait have waited for `factor` times what the swap delays."""

    tick_s = 2.0

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def decide(self, machine: SwapMachine) -> tuple[int, ...]:
        for model in machine.waiting():
            if model in machine.wanted or model in machine.held:
                continue
            waited_s = sum(machine.waits_of(model))
            leaving = {
                one
                for one in machine.wanted
                if one in machine.loaded_at
                and waited_s >= self._factor * _delay_s(machine, one, model)
            }
            found = make_way(machine, model, leaving)
            if model in found:
                return found
        return machine.wanted


def _delay_s(machine: SwapMachine, one: int, other: int) -> float:
    requests = len(machine.running.get(one, ())) + len(machine.queues.get(one, ()))
    return requests * (machine.models[one].load_s + machine.models[other].load_s)


def _played(machine: SwapMachine, choice: tuple[int, ...], base: SwapPolicy) -> float:
    """The seconds that all requests wait from now on."""
    copy = machine.copy()
    copy.want(choice)
    began_s = copy.waited_s
    is_settled = False
    while not copy.is_over:
        if not copy.step(base.tick_s):
            return inf  # nobody would ever serve the rest
        is_settled = is_settled or all(model in copy.loaded_at for model in choice)
        if is_settled:
            copy.want(base.decide(copy))
    return copy.waited_s - began_s


def make_way(machine: SwapMachine, model: int, leaving: set[int]) -> tuple[int, ...]:
    """The wanted models with `model`: of those that may leave the least recently used ones do. The
    wanted models as they are, if it does not fit even so."""
    wanted = list(machine.wanted)
    used_at = machine.used_at
    order = sorted(
        leaving, key=lambda one: (bool(machine.running.get(one)), used_at.get(one, -inf))
    )
    while not machine.fits([*wanted, model]):
        if not order:
            return machine.wanted
        wanted.remove(order.pop(0))
    return (*wanted, model)
