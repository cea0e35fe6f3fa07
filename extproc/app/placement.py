"""Runs the placement: demand from the core to the placer, wanted models to the keepers and routers.

Without either nothing here runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import qualified
from extproc.core.fleet.endpoint import Endpoint, WakeOptions
from extproc.core.fleet.health import Health
from extproc.core.observation import ModelReading, ModelState
from extproc.core.placement.demand import ModelDemand, ModelUse, ServerCounts
from extproc.core.placement.load_record import LoadRecord, LoadWatch
from extproc.core.placement.machine import KeptMachine, KeptState, Power
from extproc.core.placement.model_load import ModelLoad, any_of, first_load
from extproc.core.placement.placer import Placer
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.placement.wanted_models import Change
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.scale_advisor import ModelScale
from extproc.core.views.wake_advisor import SleepingKeeper

INTERVAL_S: Final = 0.25
"""Far shorter than a load: what is decided later by so much costs nobody much."""

log = logging.getLogger("coxswain.placement")

Want = Callable[[str, Iterable[str], Iterable[str], Iterable[str]], None]
"""Sends a machine the models that should be loaded, the failed ones to try again, and the pinned
ones."""


class Placement:
    """Belongs to one event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        want: Want,
        clock: Callable[[], float],
        options: PlacementOptions,
    ) -> None:
        self.placer = Placer(options)
        self._watch = LoadWatch()
        self.on_loaded: Callable[[LoadRecord], None] = lambda _: None
        """Called with each load that ended."""
        self.on_unloading: Callable[[Change], None] = lambda _: None
        """Called with each decision to unload a model."""
        self.machines: dict[str, KeptMachine] = {}
        self._loadable: dict[str, dict[str, ModelReading]] = {}
        self._dispatcher = dispatcher
        self._want = want
        self._clock = clock
        self._used_at: dict[tuple[str, str], float] = {}
        self._timer: asyncio.Handle | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Decide no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def changed(self, machine: KeptMachine) -> None:
        """A machine attached, left, or the state of a model changed."""
        for record in self._watch.observed(machine):
            self.on_loaded(record)
        before = self.machines.get(machine.name)
        if before is not None:
            machine.power = before.power
        self.machines[machine.name] = machine
        readings = _readings(machine)
        if self._loadable.get(machine.name) != readings:
            self._loadable[machine.name] = readings
            addresses = frozenset(model.address for model in machine.models.values())
            self._dispatcher.set_loadable(
                machine.name, readings, self._clock(), addresses, machine.pool
            )
        self._soon(0.0)

    def sleepers(self, options: Mapping[str, WakeOptions]) -> list[SleepingKeeper]:
        """The machines with a keeper that may sleep, by `machines` of the settings. One that has
        not attached yet is known from now on, without models."""
        for name in options.keys() - self.machines.keys():
            self.changed(KeptMachine(name=name, memory_mb=0, models={}, is_connected=False))
        for name, machine in list(self.machines.items()):
            if name not in options:
                machine.power = Power.AWAKE
                if not (machine.models or machine.is_connected):
                    self.forgotten(machine)
        return [self._sleeper(self.machines[name], wake) for name, wake in options.items()]

    def _sleeper(self, machine: KeptMachine, options: WakeOptions) -> SleepingKeeper:
        uses = [self._use(machine, name) for name in machine.models]
        idle_s = min((use.idle_s for use in uses), default=inf)
        return SleepingKeeper(
            machine=machine,
            options=options,
            is_pinned=bool(self.placer.pinned(machine.name)),
            used_at=self._clock() - idle_s,
        )

    def slept(self, machine: str) -> None:
        """A machine is off: what was loaded there is not wanted there again by itself."""
        self.placer.forget(machine)

    def forgotten(self, machine: KeptMachine) -> None:
        """A machine is gone for good."""
        if self.machines.get(machine.name) is machine:
            del self.machines[machine.name]
            self._loadable.pop(machine.name, None)
            self.placer.forget(machine.name)
            self._watch.forgotten(machine.name)
            self._dispatcher.set_loadable(machine.name, {}, self._clock())

    def load(self, machine: KeptMachine, model: str, *, is_pinned: bool) -> None:
        """An operator loads a model. Raises `PlacementError`."""
        now = self._clock()
        demands, use = self._demands(self._pool_of(machine), now), self._use
        if is_pinned:
            self.placer.pin(machine, model, is_pinned=True)
        self._log(self.placer.load(machine, model, demands, use, now))
        self._soon(0.0)

    def unload(self, machine: KeptMachine, model: str) -> None:
        """An operator unloads a model, until it is asked for. Raises `PlacementError`."""
        self._log(self.placer.unload(machine, model, self._clock()))
        self._soon(0.0)

    def unpin(self, machine: KeptMachine, model: str) -> None:
        """An operator lets a model go when others need its memory."""
        self.placer.pin(machine, model, is_pinned=False)
        self._soon(0.0)

    def models_loaded(self) -> dict[tuple[str, ...], float]:
        """By machine and model: 1 if it is loaded there."""
        return {
            (machine.name, name): status.state is KeptState.LOADED
            for machine in self.machines.values()
            for name, status in machine.statuses.items()
        }

    def model_loads_s(self) -> dict[tuple[str, ...], float]:
        """By machine and model: what its last load took."""
        return {
            (machine.name, name): status.load_s
            for machine in self.machines.values()
            for name, status in machine.statuses.items()
            if status.load_s is not None
        }

    def changes_total(self) -> dict[tuple[str, ...], float]:
        """Decisions since the start, by machine, model and `load` or `unload`."""
        return {key: float(count) for key, count in self.placer.changes_total.items()}

    def last_change(self, machine: KeptMachine, model: str, now: float) -> str:
        """The last decision about a model, as a sentence; empty without one."""
        change = self.placer.last_changes.get((machine.name, model))
        if change is None:
            return ""
        verb = "loaded" if change.is_load else "unloaded"
        return f"{verb} {max(0.0, now - change.at):.0f} s ago: {change.reason}"

    def addresses(self) -> frozenset[Address]:
        """The servers of models on machines with a keeper, and the routers."""
        return frozenset(
            model.address for machine in self.machines.values() for model in machine.models.values()
        )

    # Deciding

    def _soon(self, delay_s: float) -> None:
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._run)

    def _run(self) -> None:
        self._timer = None
        if not self.machines:
            self._dispatcher.set_loads({}, {}, self._clock())
            return
        self._soon(INTERVAL_S)
        try:
            self.decide(self._clock())
        except Exception:
            log.exception("the placement failed; what is loaded stays so")

    def decide(self, now: float) -> None:
        """Decide once, and send what changed to the keepers."""
        loads: dict[str, ModelLoad] = {}
        failed: dict[str, str] = {}
        scale = self._dispatcher.view.scale(now)
        for pool, machines in self._pools().items():
            demands = self._demands(pool, now)
            elsewhere = self._served_elsewhere(pool)
            servers = self._servers(pool, scale, elsewhere)
            self._log(self.placer.step(machines, demands, self._use, now, servers))
            of_pool = self._loads(pool, demands, elsewhere, now)
            loads |= {qualified(pool, name): load for name, load in of_pool.items()}
            failed |= {qualified(pool, name): why for name, why in self._failed(pool).items()}
        for name, machine in self.machines.items():
            if machine.is_connected and machine.has_reported:
                self._want(
                    *(name, self.placer.wanted(name), self.placer.take_retried(name)),
                    sorted(self.placer.pinned(name)),
                )
        self._dispatcher.set_loads(loads, failed, now)

    def _pool_of(self, machine: KeptMachine) -> str:
        return self._dispatcher.view.pool_of_machine(machine)

    def _pools(self) -> dict[str, dict[str, KeptMachine]]:
        """The machines of each pool that has any, by name."""
        found: dict[str, dict[str, KeptMachine]] = {}
        for name, machine in self.machines.items():
            found.setdefault(self._pool_of(machine), {})[name] = machine
        return found

    def _machines_of(self, pool: str) -> dict[str, KeptMachine]:
        return self._pools().get(pool, {})

    def _demands(self, pool: str, now: float) -> dict[str, ModelDemand]:
        """The queued requests for a pool by model, under the names of the keepers' files."""
        names = {
            alias: model.name
            for machine in self._machines_of(pool).values()
            for model in machine.models.values()
            for alias in (*model.aliases, model.name)
        }
        found: dict[str, ModelDemand] = {}
        for name, demand in self._dispatcher.view.demands(now, pool).items():
            model = self._default_model(pool) if name is None else names.get(name)
            if model is None:
                continue
            known = found.get(model, ModelDemand())
            found[model] = ModelDemand(
                waiting=known.waiting + demand.waiting,
                longest_wait_s=max(known.longest_wait_s, demand.longest_wait_s),
                waited_s=known.waited_s + demand.waited_s,
                context_tokens=max(known.context_tokens, demand.context_tokens),
            )
        return found

    def _default_model(self, pool: str) -> str | None:
        """The model for requests that name none: any that is loaded serves them, so one is loaded
        only if none is."""
        if self._is_any_pickable(pool):
            return None
        candidates: list[tuple[float, str]] = []
        for machine in self._machines_of(pool).values():
            if self.placer.wanted(machine.name):
                return None
            candidates += [
                (-self._used_at.get((machine.name, name), -inf), name)
                for name in machine.models
                if machine.statuses[name].state is not KeptState.FAILED
            ]
        return min(candidates, key=lambda one: one[0])[1] if candidates else None

    def _use(self, machine: KeptMachine, model: str) -> ModelUse:
        now = self._clock()
        key = machine.name, model
        address = machine.models[model].address
        running = 0
        if address in self._dispatcher.fleet:
            slots = self._dispatcher.view.slots_at(address).pool(model)
            running = len(slots.leases) + slots.foreign_slots
            used_at = now if running else slots.last_opened_at
            if used_at is not None:
                self._used_at[key] = max(used_at, self._used_at.get(key, -inf))
        return ModelUse(running=running, idle_s=now - self._used_at.get(key, -inf))

    def _servers(
        self, pool: str, scale: Mapping[str, ModelScale], elsewhere: Mapping[str, int]
    ) -> dict[str, ServerCounts]:
        """The servers that each model of a pool needs, by the one function of the core."""
        found: dict[str, ServerCounts] = {}
        machines = self._machines_of(pool).values()
        for name in {name for machine in machines for name in machine.models}:
            advice = scale.get(self._dispatcher.view.name_to_scale(name, pool))
            if advice is not None:
                found[name] = ServerCounts(
                    wanted=advice.wanted, least=advice.least, elsewhere=elsewhere.get(name, 0)
                )
        return found

    def _served_elsewhere(self, pool: str) -> Counter[str]:
        """The models that endpoints without a keeper serve, and how many do."""
        return Counter(
            name
            for endpoint in self._endpoints_elsewhere(pool)
            if endpoint.is_pickable
            for name in endpoint.models_by_name
        )

    def _endpoints_elsewhere(self, pool: str) -> list[Endpoint]:
        """The endpoints without a keeper."""
        kept: set[Address] = {
            one.address for machine in self.machines.values() for one in machine.models.values()
        }
        return [endpoint for endpoint in self._members(pool) if endpoint.address not in kept]

    def _members(self, pool: str) -> list[Endpoint]:
        """The endpoints that may serve what is loaded for a pool."""
        return [one for one in self._dispatcher.fleet if one.spec.pool == pool]

    def _is_any_pickable(self, pool: str) -> bool:
        return any(endpoint.is_pickable for endpoint in self._members(pool))

    def _loads(
        self,
        pool: str,
        demands: Mapping[str, ModelDemand],
        elsewhere: Mapping[str, int],
        now: float,
    ) -> dict[str, ModelLoad]:
        """What requests for a pool wait for, by all names of the models: loads that go on, and
        those that have not begun. `""` is for requests that name none, while no server is there
        for them."""
        found: dict[str, ModelLoad] = {}
        places: dict[str, list[KeptMachine]] = {}
        of_pool = self._machines_of(pool)
        wanted = {name for machine in of_pool for name in self.placer.wanted(machine)}
        for machine in of_pool.values():
            for name in machine.models:
                if name in wanted or _could_load(machine, name):
                    places.setdefault(name, []).append(machine)
        for name, machines in places.items():
            if name in wanted:
                load = first_load(name, of_pool, self.placer.wanted, self._is_new, now)
            elif name in elsewhere:
                load = None
            else:
                where = any_of(sorted(one.name for one in machines))
                load = ModelLoad(model=name, where=where, is_delayed=name in demands)
            if load is not None:
                aliases = machines[0].models[name].aliases
                found.update(dict.fromkeys((name, *aliases), load))
        going_on = [(one.ready_at, name) for name, one in found.items() if one.ready_at is not None]
        if going_on and not self._is_any_pickable(pool):
            found[""] = found[min(going_on)[1]]
        return found

    def _is_new(self, address: Address) -> bool:
        """Whether no scrape has shown this server yet, or Envoy does not know it."""
        endpoint = self._dispatcher.fleet.get(address)
        return endpoint is None or endpoint.health is Health.LOADING or not endpoint.is_routable

    def _failed(self, pool: str) -> dict[str, str]:
        """Why models cannot be loaded for a pool, by all of their names: they failed on every
        machine that has them, and nobody loads them until an operator does. `""` is for requests
        that name none."""
        others = self._endpoints_elsewhere(pool)
        if not all(endpoint.has_reported for endpoint in others):
            return {}  # one of them may serve it
        served = {name for endpoint in others for name in endpoint.models_by_name}
        places: dict[str, list[KeptMachine]] = {}
        for machine in self._machines_of(pool).values():
            for name in machine.models:
                places.setdefault(name, []).append(machine)
        found: dict[str, str] = {}
        is_any_left = bool(others)
        for name, machines in places.items():
            names = {name, *machines[0].models[name].aliases}
            if all(self._has_failed(one, name) for one in machines) and names.isdisjoint(served):
                where = any_of(sorted(one.name for one in machines))
                problem = machines[0].statuses[name].problem or "its server failed"
                text = f"The model {name} cannot be loaded at {where}: {problem}."
                found.update(dict.fromkeys(names, text))
            else:
                is_any_left = True
        if found and not is_any_left:
            found[""] = next(iter(found.values()))
        return found

    def _has_failed(self, machine: KeptMachine, model: str) -> bool:
        is_wanted = model in self.placer.wanted(machine.name)
        failed = machine.statuses[model].state is KeptState.FAILED
        return failed and machine.is_connected and not is_wanted

    def _log(self, changes: Sequence[Change]) -> None:
        self._watch.decided(changes)
        for change in changes:
            verb = "loading" if change.is_load else "unloading"
            log.info("%s: %s %s: %s", change.machine, verb, change.model, change.reason)
            if not change.is_load:
                self.on_unloading(change)


def _could_load(machine: KeptMachine, model: str) -> bool:
    is_there = machine.stays and model in machine.models
    return is_there and machine.statuses[model].state is not KeptState.FAILED


_SHOWN: Final = {
    KeptState.WAITING: ModelState.LOADING,
    KeptState.LOADING: ModelState.LOADING,
    KeptState.RESTARTING: ModelState.LOADING,
    KeptState.FAILED: ModelState.FAILED,
}
"""The states of a keeper's models that a list of models shows; what is loaded is an endpoint."""


def _readings(machine: KeptMachine) -> dict[str, ModelReading]:
    """The models of a machine by all of their names; names take precedence over aliases."""
    readings = {
        name: ModelReading(
            name=name,
            aliases=model.aliases,
            is_loaded=False,
            context_tokens=model.slot_tokens or None,
            reported=_SHOWN.get(machine.statuses[name].state),
        )
        for name, model in machine.models.items()
    }
    for name, model in machine.models.items():
        for alias in model.aliases:
            readings.setdefault(alias, readings[name])
    return readings
