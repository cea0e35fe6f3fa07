"""Loads and unloads models on llama-servers in router mode, where those leave it to us.

A router that was started with `--no-models-autoload` loads nothing by itself. It becomes a machine
of the placement, beside those with a keeper; what is decided for it is carried out here, over HTTP.
Without such a router nothing here runs.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extproc.app.placement import Placement
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.placement.machine import KeptMachine, KeptStatus
from extproc.core.placement.router_machine import RouterCall, RouterMachine, RouterUse
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.runners.client import Answer, Failure, FailureKind, OwnFaultError, RunnerClient
from extproc.runners.target import EndpointTarget
from extproc.runners.timeouts import Timeouts

INTERVAL_S: Final = 0.25
TIMEOUTS: Final = Timeouts(read_s=10.0)

log = logging.getLogger("coxswain.routers")


@dataclass(slots=True, eq=False)
class _Router:
    address: Address
    core: RouterMachine
    reported: tuple[KeptMachine, bool, dict[str, KeptStatus]] | None = None
    task: asyncio.Task[None] | None = None


class Routers:
    """Belongs to one event loop; end it with `aclose`.

    `target_of` says how an endpoint is reached, None if this process does not scrape it. `scrape`
    asks for a scrape now, and `set_leaving` names the models whose slots are not to be requested.
    `is_taken` says whether a keeper's machine has this name.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        placement: Placement,
        *,
        target_of: Callable[[Address], EndpointTarget | None],
        scrape: Callable[[Address], None],
        set_leaving: Callable[[Address, frozenset[str]], None],
        clock: Callable[[], float],
        is_taken: Callable[[str], bool],
    ) -> None:
        self._dispatcher = dispatcher
        self._placement = placement
        self._target_of = target_of
        self._scrape = scrape
        self._set_leaving = set_leaving
        self._clock = clock
        self._is_taken = is_taken
        self._routers: dict[Address, _Router] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def machines(self) -> Mapping[str, KeptMachine]:
        """The routers as machines, by name."""
        return {one.core.machine.name: one.core.machine for one in self._routers.values()}

    def take(self, observation: Observation) -> Observation:
        """Apply a scrape, before the core does; returns it as the core should see it."""
        known = self._routers.get(observation.address)
        router = observation.router
        if router is None and known is None:
            return observation
        if router is None or router.autoloads:
            is_answer = observation.status in (ScrapeStatus.READY, ScrapeStatus.ASLEEP)
            if known is not None and is_answer:
                self._forget(known)
            return observation
        if known is None:
            known = self._added(observation.address)
        if known is None:
            return observation
        known.core.observe(observation, router, self._clock())
        self._report(known)
        return known.core.edited(observation)

    def want(
        self, machine: str, models: Iterable[str], retried: Iterable[str], _: Iterable[str]
    ) -> bool:
        """What the placement decided; returns whether the machine is a router."""
        for router in self._routers.values():
            if router.core.machine.name == machine:
                router.core.want(models, retried, self._clock())
                self._step(router)
                return True
        return False

    async def aclose(self) -> None:
        """Stop. What is loaded stays so."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [one.task for one in self._routers.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Which routers there are

    def _added(self, address: Address) -> _Router | None:
        endpoint = self._dispatcher.fleet.get(address)
        if self._is_closed or endpoint is None:
            return None
        name = self._name_of(address)
        core = RouterMachine(name, address, endpoint.spec.pool)
        router = self._routers[address] = _Router(address, core)
        log.info("%s loads no models by itself: they are loaded as requests need them", name)
        if self._timer is None:
            self._soon()
        return router

    def _name_of(self, address: Address) -> str:
        endpoint = self._dispatcher.fleet.get(address)
        name = "" if endpoint is None else endpoint.spec.name
        is_taken = name in self.machines or self._is_taken(name)
        return str(address) if not name or is_taken else name

    def _forget(self, router: _Router) -> None:
        del self._routers[router.address]
        if router.task is not None:
            router.task.cancel()  # it would report the machine again
        self._placement.forgotten(router.core.machine)

    # Deciding

    def _soon(self) -> None:
        if not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._run)

    def _run(self) -> None:
        self._timer = None
        for router in list(self._routers.values()):
            try:
                self._follow(router)
            except Exception:
                log.exception("following %s failed", router.core.machine.name)
        if self._routers:
            self._soon()

    def _follow(self, router: _Router) -> None:
        endpoint = self._dispatcher.fleet.get(router.address)
        if endpoint is None or endpoint.spec.pool != router.core.machine.pool:
            self._forget(router)
            return
        router.core.machine.is_connected = (
            endpoint.is_answering
            and endpoint.is_routable
            and endpoint.intent is Intent.ACTIVE
            and not endpoint.is_removed
        )
        self._step(router)

    def _step(self, router: _Router) -> None:
        """Carry out what is due, and say what changed."""
        if router.task is None and not self._is_closed:
            call = router.core.next_call(lambda model: self._use(router, model), self._clock())
            if call is not None:
                router.task = asyncio.create_task(
                    self._carry_out(router, call), name=f"{call.action.value} {call.model}"
                )
        self._set_leaving(router.address, router.core.leaving)
        self._report(router)
        if router.core.awaits_change and router.core.machine.is_connected:
            self._scrape(router.address)

    def _report(self, router: _Router) -> None:
        """Report to the placement if the machine or the state of a model is another one."""
        machine = router.core.machine
        state = machine, machine.is_connected, dict(machine.statuses)
        before, router.reported = router.reported, state
        if before is None or before[0] is not machine or before[1:] != state[1:]:
            self._placement.changed(machine)

    def _use(self, router: _Router, model: str) -> RouterUse:
        endpoint = self._dispatcher.fleet.get(router.address)
        if endpoint is None:
            return RouterUse(leases=0, is_open=False)
        slots = self._dispatcher.view.slots_at(router.address)
        pools = slots.model_pools
        in_none = sum(lease.model_pool not in pools for lease in slots.leases.values())
        pool = pools.get(model)
        return RouterUse(
            leases=in_none + (0 if pool is None else len(pool.leases)),
            is_open=model in endpoint.models_by_name,
            shows_slots=slots.reports_busy_slots,
        )

    async def _carry_out(self, router: _Router, call: RouterCall) -> None:
        name = router.core.machine.name
        problem, is_unsure = "it failed; see the log", True
        try:
            outcome = await self._post(router.address, call)
            problem = _problem(outcome, call)
            is_unsure = isinstance(outcome, Failure) and outcome.kind in (
                FailureKind.TIMED_OUT,
                FailureKind.BROKEN,
            )
            if problem:
                log.warning("%s: cannot %s %s: %s", name, call.action.value, call.model, problem)
        except OwnFaultError as error:
            problem = f"the picker has reached a limit ({error})"
            log.warning("%s: cannot %s %s: %s", name, call.action.value, call.model, problem)
        except Exception:
            log.exception("%s: %s of %s failed", name, call.action.value, call.model)
        finally:
            router.task = None
            router.core.called(call, problem, self._clock(), is_unsure=is_unsure)
        self._report(router)
        self._scrape(router.address)

    async def _post(self, address: Address, call: RouterCall) -> Answer | Failure:
        target = self._target_of(address)
        if target is None:
            now = self._clock()
            message = "this picker does not scrape it"
            return Failure(
                kind=FailureKind.UNUSABLE, message=message, began_at=now, answered_at=now
            )
        client = RunnerClient(target, TIMEOUTS, self._clock)
        try:
            content = json.dumps({"model": call.model}).encode()
            return await client.post(f"/models/{call.action.value}", content)
        finally:
            await client.aclose()


def _problem(outcome: Answer | Failure, call: RouterCall) -> str:
    if isinstance(outcome, Failure):
        return outcome.message
    if outcome.status == 200:
        return ""
    return f"POST /models/{call.action.value} was answered with status {outcome.status}"
