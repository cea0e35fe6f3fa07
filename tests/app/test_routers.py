"""Claims about extproc/app/routers.py: a router's models come and go as requests need them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from extproc.app.placement import Placement
from extproc.app.routers import Routers
from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import ScrapeRequested, Settled
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import Observation
from extproc.core.placement.machine import KeptState
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import LeaseEnd
from extproc.demo.process import until
from extproc.runners.target import EndpointTarget
from scraper.loop import Scraper
from scraper.options import ScraperOptions
from scraper.schedule import Cadence
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.patience import PATIENT

WAIT_S = 60.0


class Kit:
    """A picker without Envoy, which scrapes the fake router."""

    def __init__(self, fake: FakeLlamaServer, name: str = "", taken: str = "") -> None:
        self.fake = fake
        self.target: EndpointTarget | None = EndpointTarget(
            address=fake.address, api_key=fake.api_key
        )
        strict = ResolverOptions(model_match=ModelMatch.STRICT)
        self.dispatcher = Dispatcher(Random(1), DispatcherOptions(resolver=strict))
        self.placement = Placement(
            self.dispatcher,
            lambda *wish: self._are_taken(self.routers.want(*wish)),
            time.monotonic,
            PlacementOptions(max_wait_s=1.0),
        )
        self.scraper = Scraper(
            sink=self._observe,
            options=ScraperOptions(
                cadence=Cadence(fast_s=0.02, slow_s=0.05), timeouts=PATIENT, loads_models=True
            ),
        )
        self.routers = Routers(
            self.dispatcher,
            self.placement,
            target_of=lambda _: self.target,
            scrape=self.scraper.scrape_now,
            set_leaving=self.scraper.set_leaving,
            clock=time.monotonic,
            is_taken=lambda one: one == taken,
        )
        self.spec = EndpointSpec(address=fake.address, name=name)
        self.settled: list[Settled] = []
        self.seen: list[Observation] = []
        self.dispatcher.on_events(self._take)

    def _are_taken(self, is_taken: bool) -> None:
        assert is_taken, "there are no other machines"

    def start(self) -> None:
        assert self.target is not None
        self.dispatcher.set_members("test", [self.spec], time.monotonic())
        self.dispatcher.set_routable(self.fake.address, True, time.monotonic())
        self.scraper.watch(self.target)

    async def aclose(self) -> None:
        self.placement.stop()
        await self.routers.aclose()
        await self.scraper.aclose()

    def _observe(self, observation: Observation) -> None:
        self.seen.append(self.routers.take(observation))
        self.dispatcher.observe(self.seen[-1], time.monotonic())

    def _take(self) -> None:
        for event in self.dispatcher.take_events():
            if isinstance(event, Settled):
                self.settled.append(event)
            elif isinstance(event, ScrapeRequested):
                self.scraper.scrape_now(event.address)

    def submit(self, model: str) -> object:
        return self.dispatcher.submit(Request(id=model, model=model, timeout_s=60.0), now())

    def finish(self, picked: Picked) -> None:
        self.dispatcher.release(picked.lease, LeaseEnd.SERVED, now())

    def state(self, model: str) -> KeptState | None:
        for machine in self.placement.machines.values():
            if model in machine.models:
                return machine.statuses[model].state
        return None

    def calls(self) -> list[tuple[str, str]]:
        return [
            (asked.path, json.loads(asked.body)["model"])
            for asked in self.fake.asked
            if asked.path.startswith("/models/")
        ]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def probe() -> bool:
            return is_so()

        async with asyncio.timeout(WAIT_S):
            await until(probe, every_s=0.01)

    def loads(self, model: str) -> None:
        assert self.fake.router_models is not None
        self.fake.router_models[model] = "loaded"


def now() -> float:
    return time.monotonic()


@asynccontextmanager
async def router(
    models: dict[str, str], api_key: str | None = None, name: str = "", taken: str = ""
) -> AsyncIterator[Kit]:
    fake = FakeLlamaServer()
    fake.router_models, fake.api_key = models, api_key
    fake.autoloads, fake.max_instances = False, 1
    async with fake:
        kit = Kit(fake, name, taken)
        try:
            yield kit
        finally:
            await kit.aclose()


async def test_a_request_loads_its_model_and_a_swap_waits_for_its_answer() -> None:
    async with router({"a": "unloaded", "b": "unloaded"}, api_key="secret") as kit:
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADED)
        assert isinstance(kit.submit("a"), Queued)
        await kit.until(lambda: kit.calls() == [("/models/load", "a")])
        assert kit.fake.newest("/models/load").headers["authorization"] == "Bearer secret"
        assert not kit.settled, "it loads"
        kit.loads("a")
        await kit.until(lambda: bool(kit.settled))
        (first,) = kit.settled
        assert isinstance(first.settlement, Picked)
        assert isinstance(kit.submit("b"), Queued)
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADING)
        endpoint = kit.dispatcher.fleet.get(kit.fake.address)
        assert endpoint is not None
        await kit.until(lambda: "a" not in endpoint.models_by_name)
        assert isinstance(kit.submit("a"), Queued), "it makes way"
        scrapes = len(kit.seen)
        await kit.until(lambda: len(kit.seen) > scrapes + 5)
        assert kit.calls() == [("/models/load", "a")], "its answer is not over"
        kit.finish(first.settlement)
        await kit.until(lambda: kit.calls()[1:] == [("/models/unload", "a"), ("/models/load", "b")])
        kit.loads("b")
        await kit.until(lambda: len(kit.settled) == 2)
        second = kit.settled[1].settlement
        assert isinstance(second, Picked) and second.lease.model_pool == "b"
        assert kit.dispatcher.faults(now()) == []


async def test_what_a_new_picker_finds_loaded_stays() -> None:
    async with router({"a": "loaded", "b": "unloaded"}, name="gpu-1") as kit:
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.LOADED)
        assert set(kit.placement.machines) == {"gpu-1"} == set(kit.routers.machines)
        scrapes = len(kit.seen)
        await kit.until(lambda: len(kit.seen) > scrapes + 5)
        assert kit.calls() == [] and isinstance(kit.submit("a"), Picked)
        machine = kit.placement.machines["gpu-1"]
        assert (machine.is_router, machine.max_models, machine.used_models) == (True, 1, 1)


async def test_a_router_that_loads_by_itself_is_left_alone() -> None:
    """Also one that was started again without the flag."""
    async with router({"a": "unloaded"}) as kit:
        kit.fake.autoloads = True
        kit.start()
        await kit.until(lambda: len(kit.seen) > 3)
        assert not kit.placement.machines and isinstance(kit.submit("a"), Picked)
    async with router({"a": "loaded"}) as kit:
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.LOADED)
        kit.fake.autoloads = True
        kit.fake.break_connections()
        await kit.until(lambda: not kit.placement.machines)


async def test_a_rejected_call_is_logged_and_made_again() -> None:
    async with router({"a": "unloaded"}) as kit:
        kit.fake.replies["/models/load"] = Reply.of({"error": {}}, 500)
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADED)
        kit.submit("a")
        await kit.until(lambda: kit.state("a") is KeptState.RESTARTING)
        machine = kit.placement.machines[str(kit.fake.address)]
        assert "status 500" in machine.statuses["a"].problem
        del kit.fake.replies["/models/load"]
        await kit.until(lambda: kit.fake.router_models == {"a": "loading"})
        kit.loads("a")
        await kit.until(lambda: bool(kit.settled))


async def test_a_router_without_a_target_gets_no_call() -> None:
    async with router({"a": "unloaded"}) as kit:
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADED)
        kit.target = None
        kit.submit("a")
        await kit.until(lambda: kit.state("a") is KeptState.RESTARTING)
        assert kit.calls() == []


async def test_names_of_machines_do_not_meet() -> None:
    async with router({"a": "loaded"}, name="gpu-1", taken="gpu-1") as kit:
        kit.start()
        await kit.until(lambda: set(kit.placement.machines) == {str(kit.fake.address)})


async def test_a_router_that_is_drained_or_down_gets_no_loads() -> None:
    """And one that leaves is forgotten."""
    async with router({"a": "loaded", "b": "unloaded"}, name="gpu-1") as kit:
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.LOADED)
        machine = kit.placement.machines["gpu-1"]
        kit.dispatcher.set_intent(kit.fake.address, Intent.DRAINING, now())
        await kit.until(lambda: not machine.is_connected)
        kit.dispatcher.set_intent(kit.fake.address, Intent.ACTIVE, now())
        await kit.until(lambda: machine.is_connected)
        await kit.fake.stop()
        await kit.until(lambda: not machine.is_connected)
        kit.dispatcher.set_members("test", [], now())
        await kit.until(lambda: not kit.placement.machines and not kit.routers.machines)


async def test_a_router_that_leaves_during_a_call_is_forgotten_for_good() -> None:
    """Its models would count as somewhere to load them, and no other machine would get them."""
    async with router({"a": "unloaded"}, name="gpu-1") as kit:
        reply = Reply.of({"error": {}}, 500)
        reply.gate = asyncio.Event()
        kit.fake.replies["/models/load"] = reply
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADED)
        kit.submit("a")
        await kit.until(lambda: bool(kit.calls()))
        calls = [task for task in asyncio.all_tasks() if task.get_name() == "load a"]
        kit.dispatcher.set_members("test", [], now())
        await kit.until(lambda: not kit.placement.machines)
        reply.gate.set()
        assert len(calls) == 1
        await asyncio.wait(calls)
        assert not kit.placement.machines


async def test_an_unknown_endpoint_is_no_machine() -> None:
    async with router({"a": "loaded"}) as kit:
        assert kit.target is not None
        kit.scraper.watch(kit.target)
        await kit.until(lambda: len(kit.seen) > 2)
        assert not kit.placement.machines
        assert Address("127.0.0.1", 1) not in kit.dispatcher.fleet


async def test_a_router_that_moves_to_another_pool_loads_models_for_that_one() -> None:
    async with router({"a": "unloaded"}, name="gpu-1") as kit:
        before = kit.dispatcher.options
        pools = dict.fromkeys(("chat", "batch"), before.resolver)
        resolver = ResolverOptions(pools=pools, default_pool="chat")
        kit.dispatcher.renew(replace(before, resolver=resolver), now())
        kit.spec = replace(kit.spec, pool="batch")
        kit.start()
        await kit.until(lambda: kit.state("a") is KeptState.UNLOADED)
        assert kit.placement.machines["gpu-1"].pool == "batch"
        kit.dispatcher.submit(Request(id="1", model="a", timeout_s=60.0, pool="chat"), now())
        scrapes = len(kit.seen)
        await kit.until(lambda: len(kit.seen) > scrapes + 5)
        assert kit.calls() == [], "of another pool"
        kit.dispatcher.set_members("test", [replace(kit.spec, pool="chat")], now())
        await kit.until(lambda: kit.calls() == [("/models/load", "a")])
        assert kit.placement.machines["gpu-1"].pool == "chat"
