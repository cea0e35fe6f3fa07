"""A server in router mode that loads nothing by itself, as a machine: the models that it has, and
the next call that brings it closer to what is wanted.

    wanted | the router's list               | state      | new requests
    -------|---------------------------------|------------|-------------
    yes    | loaded, or asleep               | loaded     | yes
    yes    | loading, or asked to load it    | loading    | no
    yes    | not loaded                      | waiting; restarting after a failure | no
    no     | loaded or loading               | unloading: asked when its requests have ended | no
    any    | asked to unload it              | unloading  | no
    no     | not loaded                      | unloaded   | no
    any    | five loads failed               | failed     | no

Nothing is loaded beyond the router's own limit, because then it would stop another model with its
running requests. Pure: times are arguments.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL
from extproc.core.observation import ModelReading, Observation, RouterReading
from extproc.core.placement.load_policy import FOREIGN_S, MAX_FAILURES, STABLE_S, retry_pause_s
from extproc.core.placement.machine import KeptMachine, KeptModel, KeptState, KeptStatus

ASK_AGAIN_S: Final = 30.0
"""A model that is still listed so long after it was to be unloaded is unloaded again. Longer than
the ten seconds after which a router kills its server."""
PAUSE_S: Final = 2.0
"""After an unload that the router rejected."""


class RouterAction(Enum):
    LOAD = "load"
    UNLOAD = "unload"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCall:
    """A call of the router, `/models/load` or `/models/unload`."""

    action: RouterAction
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterUse:
    """Our requests that a model may be working on; whether it may still get new ones, and whether
    the router shows its busy slots."""

    leases: int
    is_open: bool
    shows_slots: bool = True


Uses = Callable[[str], RouterUse]


@dataclass(slots=True)
class _Model:
    is_running: bool = False
    is_loading: bool = False
    is_asleep: bool = False
    busy_slots: int | None = None
    load_began_at: float | None = None
    load_asked_at: float | None = None
    """When the router took a load that it has not finished."""
    unload_asked_at: float | None = None
    quiet_since: float | None = None
    """Since when it has none of our requests and gets none."""
    left_alone_at: float | None = None
    """Since when its slots should not be requested."""
    loaded_at: float = inf
    load_s: float | None = None
    failures: int = 0
    retry_at: float = 0.0
    exits: int = 0
    problem: str = ""

    def fail(self, problem: str, now: float) -> None:
        self.load_asked_at = self.load_began_at = None
        self.failures += 1
        self.retry_at = now + retry_pause_s(self.failures)
        self.problem = problem


class RouterMachine:
    """One router. Every call is O(its models)."""

    def __init__(self, name: str, address: Address, pool: str = NO_POOL) -> None:
        """`pool` is that of its endpoint."""
        self.machine = KeptMachine(name=name, memory_mb=0, models={}, is_router=True, pool=pool)
        self._address = address
        self._models: dict[str, _Model] = {}
        self._wanted: tuple[str, ...] | None = None
        self._call: RouterCall | None = None
        self._called_at = 0.0
        self._paused_until = 0.0
        self._open: frozenset[str] = frozenset()
        """The models that may get requests, as the core knows."""
        self._listed_at = -inf
        self._is_counting = False
        self._counted_at = -inf

    def observe(self, observation: Observation, router: RouterReading, now: float) -> None:
        """Apply a scrape. If the router has other models, `machine` is another one."""
        if router.listed_at > self._listed_at:
            self._listed_at, self._is_counting = router.listed_at, router.is_counting
            self._set_models(observation.models, router.max_models)
            for reading in observation.models:
                self._list(reading.name, reading, router, now)
        if observation.busy_slots is not None and observation.began_at > self._counted_at:
            self._counted_at = observation.began_at
            for reading in observation.models:
                if reading.name in self._models:
                    self._models[reading.name].busy_slots = reading.busy_slots
        self._update(now)

    def edited(self, observation: Observation) -> Observation:
        """The observation with those models closed that may get no requests."""
        self._open = frozenset(
            reading.name
            for reading in observation.models
            if self._state(reading.name) is KeptState.LOADED
        )
        return replace(
            observation,
            models=tuple(
                replace(reading, is_closed=reading.name not in self._open)
                for reading in observation.models
            ),
        )

    def want(self, models: Iterable[str], retried: Iterable[str], now: float) -> None:
        """These models should be loaded, and no others; `retried` although they failed."""
        self._wanted = tuple(models)
        for name in retried:
            if name in self._models:
                self._models[name].failures = 0
                self._models[name].retry_at = now
        self._update(now)

    def next_call(self, uses: Uses, now: float) -> RouterCall | None:
        """The call to make now, one at a time: report its end with `called`."""
        if self._call is not None or now < self._paused_until:
            return None
        for name, model in self._models.items():
            if model.is_running and self._state(name) is KeptState.UNLOADING:
                if model.unload_asked_at is not None:
                    is_due = now - model.unload_asked_at >= ASK_AGAIN_S
                else:
                    is_due = self._is_left_alone(model, uses(name), now)
                if is_due:
                    return self._begin(RouterAction.UNLOAD, name, now)
        limit = self.machine.max_models
        used = sum(
            model.is_running or model.load_asked_at is not None for model in self._models.values()
        )
        if limit and used >= limit:
            return None
        for name in self._wanted or ():
            if self._is_loadable(name, now):
                return self._begin(RouterAction.LOAD, name, now)
        return None

    def called(self, call: RouterCall, problem: str, now: float, *, is_unsure: bool) -> None:
        """A call ended; `problem` is empty if the router accepted it. `is_unsure` if it may have
        done so: then its next list shows it."""
        self._call = None
        model = self._models.get(call.model)
        if model is not None:
            if call.action is RouterAction.UNLOAD:
                is_taken = not problem or is_unsure
                model.unload_asked_at = now if is_taken else None
                self._paused_until = now if is_taken else now + PAUSE_S
            elif not problem or is_unsure:
                model.load_began_at, model.load_asked_at = self._called_at, now
            else:
                model.fail(problem, now)
        self._update(now)

    @property
    def leaving(self) -> frozenset[str]:
        """The models whose slots should not be requested any more."""
        return frozenset(
            name
            for name, model in self._models.items()
            if self._state(name) is KeptState.UNLOADING and model.left_alone_at is not None
        )

    @property
    def awaits_change(self) -> bool:
        """Whether the next scrape is awaited: a load or an unload goes on, or is about to."""
        return self._call is not None or any(
            model.load_asked_at is not None
            or model.is_loading
            or (model.is_running and self._state(name) is KeptState.UNLOADING and _is_due(model))
            or (name in self._open) is not (self._state(name) is KeptState.LOADED)
            for name, model in self._models.items()
        )

    # The list

    def _set_models(self, readings: Iterable[ModelReading], max_models: int) -> None:
        models = {
            one.name: KeptModel(
                name=one.name, address=self._address, memory_mb=0, aliases=one.aliases
            )
            for one in readings
        }
        known = self.machine
        if known.has_reported and models == known.models and max_models == known.max_models:
            return
        self._models = {name: self._models.get(name, _Model()) for name in models}
        self.machine = replace(
            known,
            models=models,
            max_models=max_models,
            has_reported=True,
            statuses={name: one for name, one in known.statuses.items() if name in models},
        )

    def _list(self, name: str, reading: ModelReading, router: RouterReading, now: float) -> None:
        model = self._models[name]
        was_loaded = model.is_running and not model.is_loading
        was_running, model.is_running = model.is_running, name in router.running
        model.is_loading = model.is_running and reading.is_loading
        model.is_asleep = model.is_running and not (reading.is_loaded or reading.is_loading)
        is_loaded = model.is_running and not model.is_loading
        if is_loaded and not was_loaded:
            model.loaded_at = now
            if model.load_began_at is not None:
                model.load_s = now - model.load_began_at
        if is_loaded:
            model.load_asked_at = model.load_began_at = None
            if now - model.loaded_at >= STABLE_S:
                model.failures, model.problem = 0, ""
        elif not model.is_running:
            self._note_absence(name, model, was_running=was_running, now=now)

    def _note_absence(self, name: str, model: _Model, *, was_running: bool, now: float) -> None:
        """The router says that the model is not loaded."""
        if model.unload_asked_at is not None:
            if self._listed_at > model.unload_asked_at:
                model.unload_asked_at = model.quiet_since = model.left_alone_at = None
        elif model.load_asked_at is not None:
            if self._listed_at > model.load_asked_at:
                model.fail("the router could not load it; see its log", now)
        elif was_running and name in (self._wanted or ()):
            model.exits += 1
            model.fail("its server ended, or somebody unloaded it", now)

    # States

    def _state(self, name: str) -> KeptState:
        model = self._models.get(name)
        if model is None:
            return KeptState.UNLOADED
        action = self._call.action if self._call is not None and self._call.model == name else None
        is_wanted = model.is_running if self._wanted is None else name in self._wanted
        if action is RouterAction.UNLOAD or model.unload_asked_at is not None:
            return KeptState.UNLOADING
        if model.is_running and not is_wanted:
            return KeptState.UNLOADING
        if action is RouterAction.LOAD or model.load_asked_at is not None or model.is_loading:
            return KeptState.LOADING
        if model.is_running:
            return KeptState.LOADED
        if model.failures >= MAX_FAILURES:
            return KeptState.FAILED
        if not is_wanted:
            return KeptState.UNLOADED
        return KeptState.RESTARTING if model.failures else KeptState.WAITING

    def _update(self, now: float) -> None:
        """Set the statuses that changed."""
        statuses = self.machine.statuses
        for name, model in self._models.items():
            state, known = self._state(name), statuses[name]
            is_broken = state in (KeptState.RESTARTING, KeptState.FAILED)
            status = KeptStatus(
                state=state,
                since=known.since if state is known.state and known.since else now,
                load_s=model.load_s,
                exits=model.exits,
                problem=model.problem if is_broken else "",
            )
            if status != known:
                statuses[name] = status

    # Calls

    def _begin(self, action: RouterAction, name: str, now: float) -> RouterCall:
        self._call = RouterCall(action=action, model=name)
        self._called_at = now
        self._update(now)
        return self._call

    def _is_loadable(self, name: str, now: float) -> bool:
        model = self._models.get(name)
        if model is None or model.is_running or now < model.retry_at:
            return False
        is_asked = model.load_asked_at is not None or model.unload_asked_at is not None
        return not is_asked and model.failures < MAX_FAILURES

    def _is_left_alone(self, model: _Model, use: RouterUse, now: float) -> bool:
        """Whether it is quiet, and no request for its slots is open either: a server that ends
        answers none, and does not end before."""
        if not self._is_quiet(model, use, now):
            model.left_alone_at = None
            return False
        if model.left_alone_at is None:
            model.left_alone_at = now
        return self._listed_at > model.left_alone_at and not self._is_counting

    def _is_quiet(self, model: _Model, use: RouterUse, now: float) -> bool:
        """Whether an unload ends no request."""
        if use.is_open or use.leases:
            model.quiet_since = None
            return False
        if model.quiet_since is None:
            model.quiet_since = now
        if model.is_loading or model.is_asleep or not use.shows_slots:
            return True
        if self._counted_at > model.quiet_since and model.busy_slots == 0:
            return True
        return now - model.quiet_since >= FOREIGN_S


def _is_due(model: _Model) -> bool:
    """Whether its unload waits only for the router."""
    return model.unload_asked_at is not None or model.quiet_since is not None
