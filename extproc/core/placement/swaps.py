"""Which loaded models may leave a machine for another one, and when.

An idle model may leave at once, and so may one that enough other machines have. A model with work
keeps its memory for a turn:

    limit  = max_wait_s / rounds      rounds: how many models come one after the other into a place
    turn   = min(limit, load * min_share / (1 - min_share))

With k models that have work and memory for c of them at once, k - c wait, and c of those come in
each round: rounds = (k - c) / c, rounded up, at least 1. With memory for one, that is k - 1.

After its turn it leaves for a model whose first request has waited for `limit`, or whose requests
together have waited for longer than the swap would delay its own requests. The model whose request
has waited longest goes first. So a request waits for at most as many turns as there are rounds, and
k swaps: `max_wait_s` plus k times a drain and a load. A request for a model that is not
loaded while one other is busy waits for `max_wait_s` plus one drain and one load. And while `limit`
allows it, a load takes at most the share `1 - min_share` of the time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from extproc.core.placement.demand import NO_DEMAND, NO_USE, Demands, ModelUse
from extproc.core.placement.machine import KeptMachine, KeptState

ASSUMED_LOAD_S: Final = 10.0
"""What a load takes as long as nobody has seen one."""
SETTLED_S: Final = 1.0
"""A model is idle when it has had no request for this long: many clients ask again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """`max_wait_s` and `min_share` are described above."""

    max_wait_s: float = 60.0
    min_share: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """A machine at one moment: the models that are wanted there, those that an operator pinned,
    what loads take, by model, and the models of which other machines have as many as needed."""

    machine: KeptMachine
    wanted: tuple[str, ...]
    pinned: frozenset[str]
    uses: Mapping[str, ModelUse]
    loads_s: Mapping[str, float]
    surplus: frozenset[str] = frozenset()

    def use(self, model: str) -> ModelUse:
        return self.uses.get(model, NO_USE)

    def load_s(self, model: str) -> float:
        return self.loads_s.get(model, ASSUMED_LOAD_S)

    def state(self, model: str) -> KeptState:
        return self.machine.statuses[model].state


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The models that leave for another one. `cost_s` are the seconds of waiting that this causes
    for requests of those that have work."""

    victims: tuple[str, ...]
    cost_s: float

    @property
    def displaces_work(self) -> bool:
        return self.cost_s > 0.0


def do_fit(machine: KeptMachine, models: Iterable[str]) -> bool:
    """Whether these models may be loaded together: by memory, number, and their exclusions."""
    names = list(models)
    if machine.max_models and len(names) > machine.max_models:
        return False
    if sum(machine.models[name].memory_mb for name in names) > machine.memory_mb:
        return False
    return not any(machine.models[name].exclusive_with.intersection(names) for name in names)


def contending(view: MachineView, demands: Demands) -> list[str]:
    """The models with work that this machine can load."""
    return [
        name
        for name in view.machine.models
        if demands.get(name, NO_DEMAND).waiting > 0 or view.use(name).running > 0
    ]


def rounds(view: MachineView, names: Sequence[str]) -> int:
    """How many of these models come one after the other into a place, at least 1."""
    models = [view.machine.models[name] for name in names]
    if any(model.exclusive_with.intersection(names) for model in models):
        return max(1, len(names) - 1)
    pinned = {name for name in view.pinned if name in view.machine.models}
    free_mb = view.machine.memory_mb - sum(view.machine.models[n].memory_mb for n in pinned)
    largest_mb = max((m.memory_mb for m in models if m.name not in pinned), default=0)
    places = max(1, free_mb // largest_mb) if largest_mb > 0 else max(1, len(names))
    if view.machine.max_models:
        places = min(places, max(1, view.machine.max_models - len(pinned)))
    return max(1, ceil((len(names) - places) / places))


def wait_limit_s(view: MachineView, demands: Demands, options: PlacementOptions) -> float:
    """How long the first request of a model waits before others with work must make way."""
    return options.max_wait_s / rounds(view, contending(view, demands))


def turn_s(view: MachineView, model: str, limit_s: float, options: PlacementOptions) -> float:
    """How long a loaded model with work stays at least."""
    share = min(0.99, options.min_share)
    return min(limit_s, view.load_s(model) * share / (1.0 - share))


def find_swap(
    view: MachineView, model: str, demands: Demands, options: PlacementOptions, now: float
) -> Swap | None:
    """The cheapest models that may leave for `model` now; None if it cannot have their place.

    No models leave if it fits beside all of them.
    """
    limit_s = wait_limit_s(view, demands, options)
    costs: dict[str, float] = {}
    for name in view.wanted:
        cost_s = _cost_of(view, name, model, demands)
        if _may_leave(view, name, model, demands, limit_s, cost_s, options, now):
            costs[name] = cost_s
    return _cheapest(view, model, costs)


def forced_swap(view: MachineView, model: str, demands: Demands) -> Swap | None:
    """The models that leave for one that an operator wants; only pinned ones stay."""
    costs = {
        name: _cost_of(view, name, model, demands)
        for name in view.wanted
        if name not in view.pinned
    }
    return _cheapest(view, model, costs)


def _cheapest(view: MachineView, model: str, costs: Mapping[str, float]) -> Swap | None:
    """Choose among the models that may leave: those that must, then the cheapest, then those that
    have been idle for longest."""
    machine = view.machine
    left = [name for name in view.wanted if name != model]
    excluded = machine.models[model].exclusive_with
    victims = [name for name in left if name in excluded]
    if any(name not in costs for name in victims):
        return None
    by_cost = sorted(
        (name for name in costs if name in left and name not in victims),
        key=lambda name: (costs[name], -view.use(name).idle_s, name),
    )
    stay = [name for name in left if name not in victims]
    while not do_fit(machine, (*stay, model)):
        if not by_cost:
            return None
        victims.append(by_cost.pop(0))
        stay.remove(victims[-1])
    for name in sorted(victims, key=lambda one: -costs[one]):  # the dearest may not be needed
        if name not in excluded and do_fit(machine, (*stay, name, model)):
            victims.remove(name)
            stay.append(name)
    return Swap(victims=tuple(victims), cost_s=sum(costs[name] for name in victims))


def _cost_of(view: MachineView, name: str, model: str, demands: Demands) -> float:
    """Seconds of waiting for the requests of `name` if it leaves for `model` and returns; none if
    others serve them."""
    if name in view.surplus:
        return 0.0
    requests = demands.get(name, NO_DEMAND).waiting + view.use(name).running
    return requests * (view.load_s(name) + view.load_s(model))


def _may_leave(
    view: MachineView,
    name: str,
    model: str,
    demands: Demands,
    limit_s: float,
    cost_s: float,
    options: PlacementOptions,
    now: float,
) -> bool:
    if name in view.pinned or name == model:
        return False
    demand = demands.get(model, NO_DEMAND)
    is_overdue = demand.longest_wait_s >= limit_s
    if view.state(name) is KeptState.RESTARTING:
        return is_overdue or cost_s == 0.0
    if view.state(name) is not KeptState.LOADED:
        return False  # it loads for somebody, or leaves already
    if name in view.surplus:
        return True
    if cost_s == 0.0:
        return view.use(name).idle_s >= SETTLED_S
    loaded_s = now - view.machine.statuses[name].since
    if loaded_s < turn_s(view, name, limit_s, options):
        return False
    return is_overdue or demand.waited_s >= cost_s
