"""Claims about extproc/app/placement.py: from queued requests to what keepers are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from extproc.admin.placement_json import models_json
from extproc.app.pages.pages import queue_position
from extproc.app.placement import Placement
from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import Settled
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import ModelReading, ModelState, Observation, ScrapeStatus
from extproc.core.placement.demand import NO_USE
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import LeaseEnd
from extproc.core.views.explain import explain
from extproc.core.views.waits import WaitReason
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.core.placement.simulated import machine, set_state
from tests.fakes.admin_dependencies import admin_dependencies


class Kit:
    """A core with one machine of models a (alias chat) and b, memory for one, and no keeper."""

    def __init__(self, match: ModelMatch = ModelMatch.LENIENT) -> None:
        self.now = 100.0
        options = DispatcherOptions(resolver=ResolverOptions(model_match=match))
        self.dispatcher = Dispatcher(Random(1), options)
        self.wanted: dict[str, tuple[str, ...]] = {}
        self.retried: list[str] = []
        self.pinned: tuple[str, ...] = ()
        self.placement = Placement(
            self.dispatcher, self._want, lambda: self.now, PlacementOptions()
        )
        one = machine("gpu-1", 10, a=10, b=10)
        models = dict(one.models)
        models["a"] = replace(models["a"], aliases=("chat",))
        self.machine = replace(one, models=models)

    def _want(
        self,
        machine: str,
        models: Iterable[str],
        retried: Iterable[str],
        pinned: Iterable[str],
    ) -> None:
        self.wanted[machine] = tuple(models)
        self.pinned = tuple(pinned)
        self.retried += retried

    def attach(self) -> KeptMachine:
        self.placement.machines[self.machine.name] = self.machine
        readings = {
            name: ModelReading(name=model.name, aliases=model.aliases, is_loaded=False)
            for model in self.machine.models.values()
            for name in (model.name, *model.aliases)
        }
        addresses = frozenset(model.address for model in self.machine.models.values())
        self.dispatcher.set_loadable(self.machine.name, readings, self.now, addresses)
        return self.machine

    def decide(self, later_s: float = 0.25) -> tuple[str, ...]:
        self.now += later_s
        self.placement.decide(self.now)
        return self.wanted["gpu-1"]

    def submit(self, model: str | None) -> Queued | Picked | Rejected:
        return self.dispatcher.submit(Request(id="r", model=model, timeout_s=60.0), self.now)

    def loaded(self, model: str, kept_models: int = 0) -> None:
        """Its keeper reports it, and its agent its endpoint."""
        set_state(self.machine, model, KeptState.LOADED, self.now, load_s=2.0)
        one = self.machine.models[model]
        spec = EndpointSpec(address=one.address, is_reported=True, kept_models=kept_models)
        self.dispatcher.set_members("agents", [spec], self.now)
        self.observe(one.address, ModelReading(name=model, aliases=one.aliases))

    def observe(
        self,
        address: Address,
        *models: ModelReading,
        status: ScrapeStatus = ScrapeStatus.READY,
    ) -> None:
        self.now += 0.01
        self.dispatcher.observe(
            Observation(
                address=address,
                began_at=self.now,
                answered_at=self.now,
                status=status,
                slots=1,
                busy_slots=0,
                models=models,
                adapters=(),
            ),
            self.now,
        )


@pytest.mark.parametrize("match", list(ModelMatch))
def test_a_request_for_a_model_that_is_not_loaded_waits_and_loads_it(match: ModelMatch) -> None:
    """Under its alias, whether unknown names are rejected or not."""
    kit = Kit(match)
    kit.attach()
    assert kit.decide() == ()
    queued = kit.submit("chat")
    assert isinstance(queued, Queued)
    assert kit.decide() == ("a",)
    kit.loaded("a")
    assert not queued.ticket.is_waiting, "it has its slot"
    assert isinstance(kit.submit("b"), Queued), "a must not answer for b"
    assert kit.decide() == ("a",), "a has work"
    if match is ModelMatch.STRICT:
        assert isinstance(kit.submit("nobody"), Rejected)


def test_envoy_chooses_no_server_where_a_machine_has_several_models() -> None:
    """While there is no picker, any server would answer for any model."""
    kit = Kit()
    kit.loaded("a")
    assert not any(one.requires_pick for one in kit.dispatcher.fleet.membership().members)
    kit.attach()
    assert all(one.requires_pick for one in kit.dispatcher.fleet.membership().members)


@pytest.mark.parametrize("match", list(ModelMatch))
@pytest.mark.parametrize("is_early", [True, False])
def test_no_model_answers_for_another_before_its_machine_has_reported(
    match: ModelMatch, is_early: bool
) -> None:
    """After a restart the agent of one model comes before the keeper that names the others."""
    kit = Kit(match)
    early = kit.submit("b") if is_early else None
    kit.loaded("a", kept_models=2)
    queued = early or kit.submit("b")
    assert isinstance(queued, Queued) and queued.ticket.is_waiting
    assert isinstance(kit.submit("a"), Picked), "what is known is served"
    kit.attach()
    assert queued.ticket.is_waiting and queued.ticket.constraints.model == "b"


def test_a_name_that_no_machine_has_goes_anywhere_again() -> None:
    kit = Kit(ModelMatch.LENIENT)
    kit.loaded("a", kept_models=2)
    queued = kit.submit("gpt-4")
    assert isinstance(queued, Queued) and queued.ticket.is_waiting
    kit.attach()
    assert not queued.ticket.is_waiting


def test_a_machine_that_has_reported_is_not_waited_for_while_its_server_restarts() -> None:
    """The keeper has named its models; a server that loads shows none of them."""
    kit = Kit(ModelMatch.LENIENT)
    kit.attach()
    other = EndpointSpec(address=Address("10.0.0.9", 8000))
    restarting = EndpointSpec(
        address=kit.machine.models["a"].address, is_reported=True, kept_models=2
    )
    kit.dispatcher.set_members("agents", [other, restarting], kit.now)
    kit.observe(other.address, ModelReading(name="base"))
    kit.observe(restarting.address, status=ScrapeStatus.LOADING)
    assert isinstance(kit.submit("gpt-4"), Picked)
    assert isinstance(kit.submit("b"), Queued), "the machine has it"


def test_a_machine_that_is_gone_holds_up_no_unknown_name() -> None:
    """Its endpoints are down for longer than its keeper is remembered."""
    kit = Kit(ModelMatch.LENIENT)
    kit.attach()
    other = EndpointSpec(address=Address("10.0.0.9", 8000))
    gone = EndpointSpec(address=kit.machine.models["a"].address, is_reported=True, kept_models=2)
    kit.dispatcher.set_members("agents", [other, gone], kit.now)
    kit.observe(other.address, ModelReading(name="base"))
    kit.dispatcher.set_loadable(kit.machine.name, {}, kit.now)
    assert isinstance(kit.submit("gpt-4"), Picked)


def test_a_machine_is_waited_for_though_another_one_has_the_same_model() -> None:
    """Its keeper may name more."""
    kit = Kit(ModelMatch.LENIENT)
    kit.attach()
    spec = EndpointSpec(address=Address("10.0.0.9", 8000), is_reported=True, kept_models=2)
    kit.dispatcher.set_members("agents", [spec], kit.now)
    kit.observe(spec.address, ModelReading(name="a"))
    assert isinstance(kit.submit("c"), Queued)
    assert isinstance(kit.submit("a"), Picked), "what is known is served"


def test_requests_for_a_model_that_failed_are_rejected_with_the_reason() -> None:
    """Those that wait and those that come, under each of its names, until an operator loads it."""
    kit = Kit()
    kit.attach()
    queued, other = kit.submit("chat"), kit.submit("b")
    assert isinstance(queued, Queued) and isinstance(other, Queued)
    kit.decide()
    problem = "ended with exit status 1; 5 failures in a row"
    set_state(kit.machine, "a", KeptState.FAILED, kit.now, problem=problem)
    kit.decide()
    settled = [one for one in kit.dispatcher.take_events() if isinstance(one, Settled)]
    assert [one.ticket for one in settled] == [queued.ticket] and other.ticket.is_waiting
    for rejected in (settled[0].settlement, kit.submit("a"), kit.submit("chat")):
        assert isinstance(rejected, Rejected) and rejected.reason is Reason.MODEL_FAILED
        assert rejected.detail == f"The model a cannot be loaded at gpu-1: {problem}."
    explained = explain(kit.dispatcher.view, Request(id="e", model="a", timeout_s=60.0), kit.now)
    assert explained.reason is Reason.MODEL_FAILED
    assert isinstance(kit.submit(None), Queued), "b may be loaded for it"
    kit.placement.placer.load(kit.machine, "a", {}, lambda *_: NO_USE, kit.now)
    kit.decide()
    assert isinstance(kit.submit("a"), Queued), "it is tried again"


def test_a_request_that_names_no_model_is_rejected_when_all_failed() -> None:
    kit = Kit()
    kit.attach()
    for name in ("a", "b"):
        set_state(kit.machine, name, KeptState.FAILED, kit.now)
    kit.decide()
    rejected = kit.submit(None)
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.MODEL_FAILED
    kit.dispatcher.set_members("static", [EndpointSpec(address=Address("10.0.0.9", 8000))], kit.now)
    kit.decide()
    assert isinstance(kit.submit(None), Queued), "that server may serve it"
    assert isinstance(kit.submit("a"), Queued), "and may have this model"


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_model_that_may_be_served_elsewhere_is_waited_for(is_lost: bool) -> None:
    """By a machine whose keeper is away, or by a server without one that is down."""
    kit = Kit()
    kit.attach()
    set_state(kit.machine, "a", KeptState.FAILED, kit.now)
    if is_lost:
        kit.machine.is_connected = False
    else:
        other = EndpointSpec(address=Address("10.0.0.9", 8000))
        kit.dispatcher.set_members("static", [other], kit.now)
        kit.observe(other.address, ModelReading(name="a"))
        for _ in range(5):
            kit.observe(other.address, status=ScrapeStatus.UNREACHABLE)
    kit.placement.decide(kit.now)
    assert isinstance(kit.submit("a"), Queued)


def test_the_forecast_and_the_reason_name_the_load() -> None:
    kit = Kit()
    kit.attach()
    set_state(kit.machine, "a", KeptState.UNLOADED, kit.now, load_s=12.0)
    queued = kit.submit("chat")
    assert isinstance(queued, Queued)
    assert kit.dispatcher.view.waits().reason_of(queued.ticket) is WaitReason.NO_ENDPOINT
    kit.decide()
    set_state(kit.machine, "a", KeptState.LOADING, kit.now)
    kit.decide(2.0)
    assert kit.dispatcher.view.waits().reason_of(queued.ticket) is WaitReason.MODEL_LOADING
    expected_s = kit.dispatcher.view.position_of(queued.ticket, kit.now).expected_s
    assert expected_s == pytest.approx(10.0)
    note = kit.dispatcher.view.wait_note("chat", kit.now)
    assert note == "waits for a to be loaded at gpu-1, about 10 s"
    kit.decide(60.0)
    expected_s = kit.dispatcher.view.position_of(queued.ticket, kit.now).expected_s
    assert expected_s is not None and 0 < expected_s <= 1.0, "late, and soon all the same"
    set_state(kit.machine, "a", KeptState.LOADED, kit.now)
    kit.decide()
    note = "waits for a to be loaded at gpu-1, about 0 s"
    assert kit.dispatcher.view.wait_note("chat", kit.now) == note, "no scrape has shown it yet"
    kit.loaded("a")
    kit.decide()
    assert kit.dispatcher.view.wait_note("chat", kit.now) == ""


def test_what_delays_a_load_is_named() -> None:
    """Before anybody asks, while others have the memory, and nothing where it is served."""
    kit = Kit()
    kit.attach()
    kit.decide()
    assert kit.dispatcher.view.wait_note("chat", kit.now) == "waits for a to be loaded at gpu-1"
    kit.submit("a")
    kit.decide()
    kit.loaded("a")
    kit.submit("b")
    assert kit.decide() == ("a",)
    note = "waits for b to be loaded at gpu-1 when others leave memory for it"
    assert kit.dispatcher.view.wait_note("b", kit.now) == note
    assert kit.dispatcher.view.wait_note("a", kit.now) == ""
    assert kit.dispatcher.view.wait_note(None, kit.now) == ""
    set_state(kit.machine, "b", KeptState.FAILED, kit.now)
    kit.decide()
    assert kit.dispatcher.view.wait_note("b", kit.now) == "", "nobody will load it"


def test_explain_and_the_lists_say_the_same() -> None:
    kit = Kit()
    kit.attach()
    set_state(kit.machine, "a", KeptState.UNLOADED, kit.now, load_s=12.0)
    ask = Request(id="x", model="chat", timeout_s=60.0)
    kit.decide()
    assert explain(kit.dispatcher.view, ask, kit.now).note == "waits for a to be loaded at gpu-1"
    queued = kit.submit("chat")
    assert isinstance(queued, Queued)
    kit.decide()
    note = "waits for a to be loaded at gpu-1, about 12 s"
    assert explain(kit.dispatcher.view, ask, kit.now).note == note
    pending = PendingStreams()
    pending.enter(cast("RunningStream", None), queued.ticket)
    position = queue_position(kit.dispatcher, pending, "r", kit.now)
    assert position is not None and position.as_json()["note"] == note


def test_a_request_that_names_no_model_loads_one_if_none_is() -> None:
    kit = Kit()
    kit.attach()
    assert isinstance(kit.submit(None), Queued)
    assert kit.decide() == ("a",)
    note = "waits for a to be loaded at gpu-1, about 10 s"
    assert kit.dispatcher.view.wait_note(None, kit.now) == note
    assert kit.decide() == ("a",), "one is enough"
    kit.loaded("a")
    kit.decide()
    assert kit.dispatcher.view.wait_note(None, kit.now) == ""


def test_idle_time_counts_from_the_last_request() -> None:
    kit = Kit()
    kit.attach()
    models = dict(kit.machine.models)
    models["a"] = replace(models["a"], ttl_s=30.0)
    kit.machine.models = models
    queued = kit.submit("a")
    kit.decide()
    kit.loaded("a")
    kit.decide(40.0)
    assert kit.wanted["gpu-1"] == ("a",), "its request runs"
    (lease,) = kit.dispatcher.view.leases()
    kit.dispatcher.release(lease, LeaseEnd.SERVED, kit.now)
    assert kit.decide(29.0) == ("a",)
    assert kit.decide(2.0) == ()
    assert isinstance(queued, Queued)


def test_a_short_request_between_two_decisions_counts_as_use() -> None:
    kit = Kit()
    kit.attach()
    kit.submit("a")
    kit.decide()
    kit.loaded("a")
    kit.dispatcher.release(next(iter(kit.dispatcher.view.leases())), LeaseEnd.SERVED, kit.now)
    kit.decide(50.0)
    picked = kit.submit("a")
    assert isinstance(picked, Picked)
    kit.dispatcher.release(picked.lease, LeaseEnd.SERVED, kit.now)
    assert kit.placement._use(kit.machine, "a").idle_s == 0.0


def test_the_wanted_number_of_servers_decides_how_many_machines_load_a_model() -> None:
    kit = Kit()
    kit.attach()
    kit.submit("a")
    kit.decide()
    kit.loaded("a")
    other = replace(kit.machine, name="gpu-2", models={"a": kit.machine.models["a"]}, statuses={})
    kit.placement.machines["gpu-2"] = other
    for _ in range(12):
        kit.submit("a")
    kit.decide(30.0)
    assert kit.dispatcher.view.scale(kit.now)["a"].wanted == 1, "the time of a request is not known"
    assert not kit.wanted["gpu-2"]
    kit.dispatcher.state.traffic.request_ended("a", 8.0, kit.now, is_sample=True)
    kit.decide()
    assert kit.dispatcher.view.scale(kit.now)["a"].wanted > 1
    assert list(kit.wanted["gpu-2"]) == ["a"]


def test_a_machine_that_is_gone_takes_its_names_with_it() -> None:
    kit = Kit(ModelMatch.STRICT)
    kit.attach()
    assert set(kit.dispatcher.resolver.names.loadable) == {"gpu-1"}
    kit.placement.forgotten(kit.machine)
    assert not kit.dispatcher.resolver.names.loadable
    assert not kit.dispatcher.resolver.models.is_known("chat")


def test_without_a_keeper_nothing_is_known_and_nothing_asked() -> None:
    kit = Kit(ModelMatch.STRICT)
    assert not kit.placement.machines
    assert kit.placement.models_loaded() == kit.placement.changes_total() == {}
    kit.placement.decide(kit.now)
    assert not kit.wanted


def test_what_operators_and_metrics_see() -> None:
    kit = Kit()
    kit.attach()
    kit.submit("a")
    kit.decide()
    set_state(kit.machine, "a", KeptState.LOADED, kit.now, load_s=3.0)
    dependencies = admin_dependencies(kit.dispatcher, lambda: kit.now, placement=kit.placement)
    shown = models_json(dependencies, kit.now)[0]
    assert shown["name"] == "a" and shown["is_wanted"] and shown["state"] == "loaded"
    assert shown["last_change"] == "loaded 0 s ago: 1 request waited, the first for 0.2 s"
    assert kit.placement.models_loaded() == {("gpu-1", "a"): 1, ("gpu-1", "b"): 0}
    assert kit.placement.model_loads_s() == {("gpu-1", "a"): 3.0}
    assert kit.placement.changes_total() == {("gpu-1", "a", "load"): 1}


async def test_what_a_keeper_does_with_a_model_is_listed() -> None:
    """Also by the model's aliases; what is loaded is an endpoint, and listed as that."""
    kit = Kit()
    shown = []
    for state in KeptState:
        set_state(kit.machine, "a", state, kit.now)
        kit.placement.changed(kit.machine)
        loadable = kit.dispatcher.resolver.names.loadable["gpu-1"]
        assert loadable["chat"] is loadable["a"] and loadable["b"].state is ModelState.UNLOADED
        shown.append(loadable["a"].state.value)
    kit.placement.stop()
    by_state = dict(zip((state.value for state in KeptState), shown, strict=True))
    assert by_state == {
        "unloaded": "unloaded",
        "waiting": "loading",
        "loading": "loading",
        "loaded": "unloaded",
        "unloading": "unloaded",
        "restarting": "loading",
        "failed": "failed",
    }
