"""Claims about pools in the core: names, bounds, fairness and forecasts stay within one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.constraints import UNRESOLVED, Constraints, qualified, unconstrained
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.eligibility import why_not
from extproc.core.fleet.endpoint import EndpointSpec, WakeOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.placement.machine import KeptMachine
from extproc.core.placement.model_load import ModelLoad
from extproc.core.request import Request
from extproc.core.scaling.wanted import ScaleOptions, ServerBounds
from extproc.core.slots.lease import LeaseEnd
from extproc.core.views.explain import explain
from extproc.core.views.fleet_capacity import fleet_capacity, fleet_health
from extproc.core.views.wake_advisor import WakeAdvisor
from tests.fakes.steered_fleet import SteeredFleet

CHAT, BATCH = "chat", "batch"


class PooledFleet(SteeredFleet):
    """Two pools, of which `chat` is the default."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pool_of: dict[Address, str] = {}
        self.splits: dict[str, dict[str, dict[str, float]]] = {}
        self.default = CHAT
        self.configure(CHAT, BATCH)

    def configure(self, *pools: str, **changed: Any) -> None:
        """Let these be the pools."""
        before = self.dispatcher.options
        of_pools = {
            name: ResolverOptions(
                model_match=before.resolver.model_match,
                splits=self.splits.get(name, {}),
                objectives=objectives(name),
            )
            for name in pools
        }
        resolver = replace(before.resolver, pools=of_pools, default_pool=self.default)
        options = replace(before, resolver=resolver, **changed)
        self.dispatcher.renew(options, self.now)

    def place(self, address: Address, pool: str) -> None:
        """An endpoint is in this pool from now on."""
        self.pool_of[address] = pool
        specs = [EndpointSpec(address=one, pool=where) for one, where in self.pool_of.items()]
        self.dispatcher.set_members("test", specs, self.now)

    def add(self, slots: int, pool: str = CHAT, **told: Any) -> Address:
        address = Address("10.0.0.1", 8000 + len(self.pool_of))
        self.place(address, pool)
        self.scrape(address, slots=slots, busy_slots=0, **told)
        return address


def objectives(pool: str) -> Objectives:
    urgent = Objective(
        name=f"{pool}/urgent", pool=pool, criticality=Criticality.CRITICAL, queue_s=2.0
    )
    return Objectives(by_name={"urgent": urgent, urgent.name: urgent}, default=Objective(pool=pool))


def test_a_full_pool_waits_beside_an_idle_one() -> None:
    """Its requests are queued, and those of the other one are served; each queue has its length,
    and a rejection for a full one names no other."""
    fleet = PooledFleet(queue_max_requests=2)
    here, there = fleet.add(1, CHAT), fleet.add(1, BATCH)
    lease = fleet.pick(pool=BATCH)
    waiting = [fleet.queue(pool=BATCH) for _ in range(2)]
    assert fleet.rejection(pool=BATCH) == "queue-full"
    assert fleet.pick(pool=CHAT).address == here
    late = fleet.queue(pool=CHAT, objective="urgent")
    assert all(map(fleet.is_waiting, waiting)), "no request of another pool evicts them"
    fleet.finish(lease)
    assert fleet.served(waiting[0]).address == there
    assert fleet.is_waiting(waiting[1]) and fleet.is_waiting(late)
    view = fleet.dispatcher.view
    assert view.position_of(late, fleet.now)[:2] == (1, 1), "it competes with nobody"
    assert view.position_of(waiting[1], fleet.now)[:2] == (1, 1)
    assert view.waits().by_model().keys() >= {qualified(CHAT, ""), qualified(BATCH, "")}
    assert fleet.dispatcher.faults(fleet.now) == []
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.queue.count_for(BATCH) == 1
    assert fleet.dispatcher.queue.count_for("") == 2
    assert view.queue_depths()["standard", BATCH] == view.queue_depths()["critical", CHAT] == 1
    waiting[1].request = replace(waiting[1].request, pool=CHAT)
    assert "tickets wait by pool" in fleet.dispatcher.faults(fleet.now)[0]
    fleet.dispatcher.rebuild(fleet.now)


def test_only_a_request_of_the_same_pool_is_evicted() -> None:
    fleet = PooledFleet(queue_max_requests=1)
    fleet.add(1, CHAT), fleet.add(1, BATCH)
    fleet.pick(pool=CHAT), fleet.pick(pool=BATCH)
    ours, other = fleet.queue(pool=CHAT), fleet.queue(pool=BATCH)
    fleet.queue(pool=CHAT, objective="urgent")
    assert not fleet.is_waiting(ours) and fleet.is_waiting(other)


def test_names_are_those_of_the_pool() -> None:
    """A model, an alias and an adapter that only another pool has are unknown here."""
    fleet = PooledFleet(match=ModelMatch.STRICT)
    fleet.splits[BATCH] = {"night": {"big": 1.0}}
    fleet.configure(CHAT, BATCH)
    fleet.add(1, CHAT, models=["tiny"])
    there = fleet.add(1, BATCH, models=["big"], adapters=["law"])
    assert fleet.rejection(pool=CHAT, model="big") == "model-not-found"
    assert fleet.rejection(pool=CHAT, model="night") == "model-not-found"
    assert fleet.rejection(pool=CHAT, adapter="law", model="tiny") == "model-not-found"
    assert fleet.pick(pool=BATCH, model="night").address == there
    assert fleet.queue(pool=BATCH, model="big").constraints.pool == BATCH
    resolver = fleet.dispatcher.resolver
    assert resolver.of_pool(BATCH).names.split("big:law") == ("big", "law")
    assert resolver.of_pool(CHAT).names.split("big:law") == ("big:law", None)
    assert resolver.of_pool(BATCH).pool == BATCH and resolver.pool == ""
    assert resolver.of_pool("gone") is resolver
    assert not resolver.of_pool(CHAT).routes_by_model or resolver.routes_by_model


def test_a_queued_request_follows_the_models_of_its_pool() -> None:
    """Leniently it may go anywhere in its pool until its model comes, and waits for nobody else's;
    while a server has not reported its adapters, a name may be one of these."""
    fleet = PooledFleet()
    fleet.add(1, CHAT, models=["tiny"]), fleet.add(1, BATCH, models=["tiny"])
    fleet.pick(pool=CHAT), fleet.pick(pool=BATCH)
    ours, other = (fleet.queue(pool=pool, model="new") for pool in (CHAT, BATCH))
    assert ours.constraints == unconstrained(CHAT)
    here = fleet.add(1, CHAT, models=["new"])
    assert fleet.served(ours).address == here
    assert other.constraints == unconstrained(BATCH), "it is no model of its pool"

    fleet = PooledFleet()
    fleet.add(1, CHAT, models=["tiny"])
    late = Address("10.0.0.1", 9000)
    fleet.place(late, BATCH)
    ticket = fleet.queue(pool=BATCH, model="tiny:law")
    assert fleet.pick(pool=CHAT, model="tiny:law"), "all of its pool have reported"
    fleet.scrape(late, slots=1, busy_slots=0, models=["tiny"], adapters=["law"])
    assert fleet.served(ticket).address == late


def test_an_endpoint_that_moves_takes_its_models_along() -> None:
    """What waits for them here goes anywhere else in the pool, or waits; what runs ends there."""
    fleet = PooledFleet()
    moving = fleet.add(2, CHAT, models=["big"])
    stays = fleet.add(1, CHAT, models=["tiny"])
    lease = fleet.pick(pool=CHAT, model="big")
    fleet.pick(pool=CHAT, model="big")
    ticket = fleet.queue(pool=CHAT, model="big")
    fleet.place(moving, BATCH)
    assert fleet.served(ticket).address == stays, "lenient: its model is gone from the pool"
    assert fleet.dispatcher.resolver.of_pool(BATCH).models.is_known("big")
    assert not fleet.dispatcher.resolver.of_pool(CHAT).models.is_known("big")
    fleet.finish(lease)
    assert fleet.pick(pool=BATCH, model="big").address == moving
    fleet.place(moving, "gone")
    fleet.place(moving, "")
    assert not fleet.dispatcher.resolver.of_pool(BATCH).models.is_known("big")
    endpoint = fleet.dispatcher.fleet.get(moving)
    assert endpoint is not None
    assert list(why_not(unconstrained(CHAT), endpoint)) == [
        "it is in no pool, and the request is for the pool chat"
    ]
    assert list(
        why_not(Constraints(pool=BATCH), fleet.dispatcher.fleet.get(stays) or endpoint)
    ) == ["it is in the pool chat, and the request is for the pool batch"]


def test_a_pool_comes_with_endpoints_that_are_known_already() -> None:
    fleet = PooledFleet(match=ModelMatch.STRICT)
    address = fleet.add(1, "night", models=["owl"])
    far = Address("10.9.0.1", 443)
    fleet.dispatcher.set_members("far", [EndpointSpec(address=far, pool="night", tier=2)], 0.0)
    fleet.configure(CHAT, "night")
    assert fleet.pick(pool="night", model="owl").address == address
    resolver = fleet.dispatcher.resolver.of_pool("night")
    assert [one.address for one in resolver.fleet.far] == [far]
    assert len(resolver.fleet) == 2 and address in resolver.fleet
    assert Address("10.0.0.9", 1) not in resolver.fleet


def test_what_waits_in_a_pool_that_goes_is_rejected() -> None:
    """Also a request with slots that are reserved for it; the others stay queued."""
    fleet = PooledFleet()
    fleet.add(1, CHAT), fleet.add(2, BATCH)
    fleet.pick(pool=CHAT), fleet.pick(pool=BATCH)
    stays = fleet.queue(pool=CHAT)
    heavy = fleet.queue(pool=BATCH, weight_slots=2)
    assert heavy.reservation is not None
    fleet.configure(CHAT)
    settlement = fleet.listener.settlements[heavy.id]
    assert getattr(settlement, "reason", None) is not None
    assert fleet.is_waiting(stays)
    assert fleet.dispatcher.faults(fleet.now) == []
    fleet.dispatcher.renew(fleet.dispatcher.options)
    fleet.default = ""
    fleet.configure()
    assert not fleet.is_waiting(stays), "no pools are configured any more"


def test_a_bound_of_a_pool_holds_its_requests_alone() -> None:
    bounds = BoundOptions(limits={(BoundKind.POOL, BATCH): BoundLimits(running=1, queued=1)})
    fleet = PooledFleet()
    fleet.configure(CHAT, BATCH, bounds=bounds)
    fleet.add(2, CHAT), fleet.add(2, BATCH)
    lease = fleet.pick(pool=BATCH)
    ticket = fleet.queue(pool=BATCH)
    assert fleet.rejection(pool=BATCH) == "bound-reached"
    assert fleet.pick(pool=CHAT) and fleet.pick(pool=CHAT)
    fleet.finish(lease)
    assert fleet.served(ticket).bounds[0].name == BATCH


def test_use_in_one_pool_delays_nobody_in_another() -> None:
    """A tenant that used much in one pool is served in the other as if it had used nothing."""
    fleet = PooledFleet()
    fleet.add(1, CHAT), fleet.add(1, BATCH)
    first = fleet.pick(pool=CHAT, tenant="hog")
    fleet.queue(pool=CHAT, tenant="hog")
    fleet.now += 500.0
    fleet.finish(first)
    held = fleet.pick(pool=BATCH, tenant="other")
    hog = fleet.queue(pool=BATCH, tenant="hog")
    fleet.now += 1.0
    other = fleet.queue(pool=BATCH, tenant="other")
    fleet.finish(held)
    assert not fleet.is_waiting(hog) and fleet.is_waiting(other)
    tenants = {(one.key.tenant, one.key.pool) for one in fleet.dispatcher.state.fairness.tenants()}
    assert {("hog", CHAT), ("hog", BATCH)} <= tenants


def test_a_server_is_ejected_only_if_its_pool_has_another() -> None:
    fleet = PooledFleet()
    alone = fleet.add(4, CHAT)
    for _ in range(3):
        fleet.add(4, BATCH)

    def fail(pool: str) -> None:
        lease = fleet.pick(pool=pool)
        at, error = fleet.now, Fault.SERVER_ERROR
        fleet.dispatcher.responded(lease, at, is_error=True, is_stream=False, fault=error)
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, at)
        fleet.now += 1.0

    for pool in [CHAT] * 8 + [BATCH] * 24:
        fail(pool)
    ejected = {one.address for one in fleet.dispatcher.fleet if one.is_ejected}
    assert ejected and alone not in ejected


def test_wanted_servers_are_counted_by_pool() -> None:
    """A request that names no model counts for the only one of its pool."""
    fleet = PooledFleet()
    bounds = {qualified(BATCH, "tiny"): ServerBounds(min_servers=3)}
    fleet.configure(CHAT, BATCH, scale=ScaleOptions(models=bounds))
    fleet.add(1, CHAT, models=["tiny"]), fleet.add(1, BATCH, models=["tiny"])
    fleet.pick(pool=BATCH, model="tiny")
    fleet.queue(pool=BATCH)
    scale = fleet.dispatcher.view.scale(fleet.now)
    assert set(scale) == {"chat/tiny", "batch/tiny"}
    batch, chat = scale["batch/tiny"], scale["chat/tiny"]
    assert (batch.pool, batch.model, batch.wanted) == (BATCH, "tiny", 3)
    assert (batch.traffic.queued_slots, batch.traffic.busy_slots) == (1, 1)
    assert (chat.traffic.queued_slots, chat.traffic.busy_slots) == (0, 0)
    named = fleet.dispatcher.view.scale(fleet.now, "batch/urgent")
    assert named["batch/tiny"].traffic.queued_slots == 0
    assert fleet.dispatcher.view.scale(fleet.now, "none/urgent")
    assert fleet.dispatcher.view.canonical_in_pool("batch/tiny") == "batch/tiny"
    assert fleet.dispatcher.view.name_to_scale("tiny") == "chat/tiny"
    assert fleet.dispatcher.view.pools == (CHAT, BATCH)


def test_machines_load_models_for_the_requests_of_one_pool() -> None:
    """That of the machine, the default one if it names none: loads, failures and demands of other
    pools are none of theirs."""
    fleet = PooledFleet(match=ModelMatch.STRICT)
    fleet.add(1, CHAT, models=["tiny"]), fleet.add(1, BATCH, models=["tiny"])
    big = {"big": ModelReading(name="big", is_loaded=False)}
    fleet.dispatcher.set_loadable("gpu", big, 0.0)
    ticket = fleet.queue(pool=CHAT, model="big")
    assert fleet.rejection(pool=BATCH, model="big") == "model-not-found"
    view = fleet.dispatcher.view
    fleet.pick(pool=BATCH, model="tiny")
    waits = fleet.queue(pool=BATCH, model="tiny")
    assert list(view.demands(fleet.now)) == ["big"]
    assert list(view.demands(fleet.now, BATCH)) == ["tiny"]
    load = ModelLoad(model="big", where="gpu", ready_at=fleet.now + 5)
    fleet.dispatcher.set_loads({"chat/big": load, "chat/tiny": load}, {}, fleet.now)
    assert view.wait_note("big", fleet.now, CHAT) and not view.wait_note("tiny", fleet.now, BATCH)
    assert view.waits().reason_of(ticket).value == "model-loading"
    assert view.waits().reason_of(waits).value == "no-idle-slot"
    fleet.dispatcher.set_loads({}, {"chat/tiny": "it failed"}, fleet.now)
    assert fleet.is_waiting(waits)
    assert fleet.rejection(pool=CHAT, model="tiny") == "model-failed"
    fleet.dispatcher.set_loads({}, {}, fleet.now)
    assert "chat/big" in view.scale(fleet.now) and "batch/big" not in view.scale(fleet.now)

    fleet.dispatcher.set_loadable("own", big, 0.0, pool=BATCH)
    assert fleet.queue(pool=BATCH, model="big") and "batch/big" in view.scale(fleet.now)
    own, of_default = (
        KeptMachine(name=name, memory_mb=0, models={}, pool=pool)
        for name, pool in (("own", BATCH), ("gpu", ""))
    )
    assert (view.pool_of_machine(own), view.pool_of_machine(of_default)) == (BATCH, CHAT)
    resolver = fleet.dispatcher.resolver
    assert list(resolver.of_pool(BATCH).names.loadable) == ["own"]
    fleet.dispatcher.set_loadable("own", {}, 0.0)
    assert resolver.pool_of_machine("own") == CHAT, "it is forgotten"
    assert not resolver.of_pool(BATCH).names.loadable

    fleet.default = BATCH
    fleet.configure(CHAT, BATCH)
    assert fleet.queue(pool=BATCH, model="big")
    assert not resolver.of_pool(CHAT).names.loadable
    fleet.default = ""
    fleet.configure(CHAT, BATCH)
    assert not resolver.of_pool(BATCH).names.loadable


def test_a_pool_that_comes_later_has_the_models_of_its_machines() -> None:
    """And one that goes and comes again."""
    fleet = PooledFleet(match=ModelMatch.STRICT)
    big = {"big": ModelReading(name="big", is_loaded=False)}
    fleet.dispatcher.set_loadable("own", big, 0.0, pool="night")
    resolver = fleet.dispatcher.resolver
    for _ in range(2):
        fleet.configure(CHAT, BATCH, "night")
        assert list(resolver.of_pool("night").names.loadable) == ["own"]
        fleet.configure(CHAT, BATCH)
        assert not any(resolver.of_pool(name).names.loadable for name in (CHAT, BATCH))


def test_machines_are_woken_for_requests_of_their_pool() -> None:
    fleet = PooledFleet()
    wakes = {
        pool: WakeOptions(mac=f"00:11:22:33:44:{number:02}")
        for number, pool in enumerate((CHAT, BATCH))
    }
    specs = [
        EndpointSpec(address=Address("10.0.0.7", 8080 + number), pool=pool, wake=wakes[pool])
        for number, pool in enumerate(wakes)
    ]
    fleet.dispatcher.set_members("asleep", specs, fleet.now)
    for spec in specs:
        fleet.scrape(spec.address, status=ScrapeStatus.UNREACHABLE)
    awake = fleet.add(1, BATCH)
    macs = {pool: one.mac for pool, one in wakes.items()}

    def advisor() -> WakeAdvisor:
        found = fleet.dispatcher.view.wake_advisor(fleet.now)
        assert found is not None
        return found

    def wanted() -> set[str]:
        return advisor().wanted(macs.values(), [])

    fleet.pick(pool=BATCH), fleet.queue(pool=BATCH)
    assert wanted() == set()
    fleet.queue(pool=CHAT)
    assert wanted() == {macs[CHAT]}, "a server of another pool that is awake does not help"
    capacity = fleet_capacity(fleet.dispatcher.view)
    assert (capacity.slots, capacity.busy) == (0, 1), "a parent's requests are for the default"
    health = fleet_health(fleet.dispatcher.view, BATCH)
    assert (health.idle, health.processing) == (0, 2), "its machine that sleeps has a slot, too"
    assert fleet_health(fleet.dispatcher.view).processing == 3

    view = fleet.dispatcher.view
    fleet.dispatcher.set_wakes(advisor().wakes(dict.fromkeys(macs.values()), fleet.now))
    assert set(fleet.dispatcher.state.wakes) == {"chat/"}, "the other pool has a server"
    assert view.wait_note(None, fleet.now, CHAT) and not view.wait_note(None, fleet.now, BATCH)
    fleet.scrape(awake, status=ScrapeStatus.UNREACHABLE)
    assert wanted() == set(macs.values())
    assert advisor().wanted([macs[BATCH]], [macs[CHAT]]) == {macs[BATCH]}


def test_a_machine_with_servers_of_two_pools_wakes_for_either() -> None:
    """Its models are those of each of them."""
    fleet = PooledFleet(match=ModelMatch.STRICT)
    wake = WakeOptions(mac="00:11:22:33:44:55")
    chat, batch = (Address("10.0.0.7", 8080 + number) for number in range(2))
    specs = [
        EndpointSpec(address=address, pool=pool, wake=wake)
        for address, pool in ((chat, CHAT), (batch, BATCH))
    ]
    fleet.dispatcher.set_members("one", specs, fleet.now)
    fleet.scrape(chat, models=["tiny"])
    fleet.scrape(batch, models=["big"])
    for address in (chat, batch):
        fleet.scrape(address, status=ScrapeStatus.UNREACHABLE)
    ticket = fleet.queue(pool=BATCH, model="big")
    advisor = fleet.dispatcher.view.wake_advisor(fleet.now)
    assert advisor is not None and list(advisor.machines()) == [wake.mac]
    assert advisor.wanted([wake.mac], []) == {wake.mac}
    fleet.dispatcher.set_wakes(advisor.wakes({wake.mac: fleet.now + 5.0}, fleet.now))
    view = fleet.dispatcher.view
    assert set(fleet.dispatcher.state.wakes) == {"chat/", "chat/tiny", "batch/", "batch/big"}
    assert view.waits().reason_of(ticket).value == "waking"
    assert not view.wait_note("big", fleet.now, CHAT)


def test_what_waits_until_names_are_known_wakes_machines_of_its_pool() -> None:
    fleet = PooledFleet()
    wake = WakeOptions(mac="00:11:22:33:44:55")
    fleet.dispatcher.set_members(
        "own", [EndpointSpec(address=Address("10.0.0.7", 8080), pool=BATCH, wake=wake)], fleet.now
    )
    fleet.add(1, BATCH, models=["tiny"])
    ticket = fleet.queue(pool=BATCH, model="tiny:lora")
    fleet.now += 3.0
    view = fleet.dispatcher.view
    assert ticket.constraints == UNRESOLVED
    assert view.demands(fleet.now, CHAT) == {}
    (demand,) = view.demands(fleet.now, BATCH).values()
    assert (demand.waiting, demand.longest_wait_s) == (1, 3.0)


def test_an_explanation_names_the_pool() -> None:
    fleet = PooledFleet()
    fleet.add(1, CHAT), fleet.add(1, BATCH)
    found = explain(fleet.dispatcher.view, Request(id="r", timeout_s=1.0, pool=BATCH), fleet.now)
    assert found.resolved["pool"] == BATCH
    assert found.candidates[1].filtered[0].startswith("it is in the pool chat")


def test_an_api_is_one_of_a_server_of_the_pool() -> None:
    fleet = PooledFleet()
    fleet.add(1, CHAT, apis=frozenset(), runner="vllm")
    there = fleet.add(1, BATCH, apis=frozenset({"ollama"}), runner="ollama")
    assert fleet.rejection(pool=CHAT, api="ollama") == "unknown-path"
    assert fleet.pick(pool=BATCH, api="ollama").address == there


@pytest.mark.parametrize("pool", ["", CHAT])
def test_names_with_their_pool(pool: str) -> None:
    assert qualified(pool, "a/b") == ("chat/a/b" if pool else "a/b")
    assert unconstrained(pool) == Constraints(pool=pool)
