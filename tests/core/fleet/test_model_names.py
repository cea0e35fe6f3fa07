"""Claims about names that no server has reported yet: extproc/core/fleet/model_names.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.fleet.aliases import MAX_REMEMBERED, ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.prompt_blocks import chain
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.views.explain import explain
from tests.fakes.steered_fleet import SteeredFleet

READY: dict[str, Any] = {"slots": 2, "busy_slots": 0, "models": ["m"]}
POET = {"model": "m:poet"}


def scrape(fleet: SteeredFleet, address: Address, **reported: Any) -> None:
    fleet.now += 1.0
    fleet.scrape(address, **reported)


def settled(fleet: SteeredFleet, ticket: Ticket) -> tuple[Address, int | None, str | None]:
    """The endpoint, the adapter's number there, and the model's name."""
    settlement = fleet.listener.settlements[ticket.id]
    assert isinstance(settlement, Picked), settlement
    return settlement.lease.address, settlement.adapter_id, settlement.model


def rejected(fleet: SteeredFleet, ticket: Ticket) -> str:
    settlement = fleet.listener.settlements[ticket.id]
    assert isinstance(settlement, Rejected), settlement
    return settlement.reason.value


@pytest.mark.parametrize(
    "seen", [None, {"status": ScrapeStatus.LOADING}, {**READY, "awaits_adapters": True}]
)
@pytest.mark.parametrize("match", ModelMatch)
@pytest.mark.parametrize("name", [POET, {"model": ":poet"}, {"adapter": "poet", "model": "m"}])
def test_a_request_waits_for_an_adapter_until_all_servers_have_reported(
    name: dict[str, str], match: ModelMatch, seen: dict[str, Any] | None
) -> None:
    """Others have free slots, and no other request is delayed."""
    fleet = SteeredFleet(match=match)
    other = fleet.add(9, models=["m"])
    late = fleet.join()
    if seen is not None:
        scrape(fleet, late, **seen)
    waiting = [fleet.queue(**name) for _ in range(2)]
    for _ in range(3):
        assert fleet.pick(model="m", allowed=frozenset({other})).address == other
        fleet.pick()
    assert all(map(fleet.is_waiting, waiting))
    scrape(fleet, late, **READY | {"slots": 9}, adapters=["bard", "poet"])
    for ticket in waiting:
        assert settled(fleet, ticket)[:2] == (late, 1)


def test_the_base_name_is_the_model() -> None:
    """By its own name; and if it is split, the drawn model."""
    fleet = SteeredFleet(splits={"chat": {"m": 1.0}})
    late = fleet.join()
    waiting = [fleet.queue(model=name) for name in ("m:poet", "chat:poet")]
    scrape(fleet, late, **READY, adapters=["poet"])
    assert [settled(fleet, ticket) for ticket in waiting] == [(late, 0, "m")] * 2
    assert waiting[0].request.adapter == "poet", "so that its server's batches are distinguished"


@pytest.mark.parametrize("is_empty", [False, True])
def test_requests_wait_while_no_server_has_reported(is_empty: bool) -> None:
    """Also for a server that is down, or that no source named yet."""
    fleet = SteeredFleet()
    if not is_empty:
        scrape(fleet, fleet.join(), status=ScrapeStatus.UNREACHABLE)
    waiting = [fleet.queue(model="some/base:poet"), fleet.queue(adapter_numbers=frozenset({1}))]
    address = fleet.join() if is_empty else fleet.addresses[0]
    scrape(fleet, address, **READY | {"slots": 1}, adapters=["bard", "poet"])
    assert settled(fleet, waiting[0]) == (address, 1, "some/base")
    assert fleet.is_waiting(waiting[1]), "there is one slot"


def test_a_fleet_that_is_about_to_be_empty_knows_no_names() -> None:
    """Its last server is leaving, with a request on it; the next one may have the adapter."""
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    lease = fleet.pick()
    fleet.dispatcher.set_members("test", [], fleet.now)
    assert lease.address in fleet.dispatcher.fleet
    waiting = fleet.queue(model="any/base:poet")
    late = fleet.join()
    fleet.dispatcher.set_members("test", [EndpointSpec(address=late)], fleet.now)
    scrape(fleet, late, **READY, adapters=["poet"])
    assert settled(fleet, waiting) == (late, 0, "any/base")


@pytest.mark.parametrize("name", ["qwen2.5:7b", "hf/user:Q4_K_M", "m:latest"])
def test_an_ordinary_name_waits_only_once(name: str) -> None:
    """When all have reported, it goes anywhere; and then at once, even if servers join later."""
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    late = fleet.join()
    waiting = fleet.queue(model=name)
    scrape(fleet, late, **READY, adapters=["poet"])
    assert settled(fleet, waiting)[1:] == (None, name)
    fleet.join()
    fleet.pick(model=name)
    assert fleet.is_waiting(fleet.queue(model=name + "x"))


def test_in_a_known_fleet_no_name_waits() -> None:
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    for name in ("qwen2.5:7b", "hf/user:Q4_K_M", "m:poet", ":", "m:", ":x"):
        fleet.pick(model=name)
    assert fleet.rejection(adapter="poet") == "model-not-found"


def test_a_reported_name_with_a_colon_never_waits() -> None:
    fleet = SteeredFleet(match=ModelMatch.STRICT, splits={"my:own": {"llama3:8b": 1.0}})
    fleet.add(9, models=["llama3:8b"])
    fleet.join()
    fleet.pick(model="llama3:8b")
    fleet.pick(model="my:own")


def test_a_name_in_the_settings_is_no_adapter() -> None:
    """Even if its last part is the name of one, too."""
    fleet = SteeredFleet(splits={"chat:poet": {"m": 1.0}})
    fleet.add(1, models=["m"], adapters=["poet"])
    names = fleet.dispatcher.state.resolver.names
    assert names.split("chat:poet") == ("chat:poet", None)
    assert names.split("m:poet") == ("m", "poet")


def test_a_down_server_delays_only_adapters_of_known_models() -> None:
    """It never reported, and others serve: a name whose base is no model is no adapter's."""
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    down = fleet.join()
    scrape(fleet, down, status=ScrapeStatus.UNREACHABLE)
    fleet.pick(model="qwen2.5:7b")
    assert fleet.rejection(adapter="poet") == "model-not-found"
    waiting = fleet.queue(**POET)
    scrape(fleet, down, **READY, adapters=["poet"])
    assert settled(fleet, waiting) == (down, 0, "m")


def test_a_strict_fleet_rejects_what_only_a_down_server_may_have() -> None:
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    fleet.add(9, models=["m"])
    down = fleet.join()
    scrape(fleet, down, status=ScrapeStatus.UNREACHABLE)
    assert fleet.rejection(**POET) == "model-not-found"


@pytest.mark.parametrize("is_disabled", [False, True])
def test_a_server_that_will_not_report_is_not_waited_for(is_disabled: bool) -> None:
    """An operator disabled it, or it left."""
    fleet = SteeredFleet()
    other = fleet.add(9, models=["m"])
    late = fleet.join()
    waiting = fleet.queue(**POET)
    if is_disabled:
        fleet.dispatcher.set_intent(late, Intent.DISABLED, fleet.now)
    else:
        fleet.addresses.remove(late)
        fleet.dispatcher.set_members("test", [], fleet.now)
        assert fleet.is_waiting(waiting)
        fleet.addresses.clear()
        other = fleet.add(9, models=["m"])
    scrape(fleet, other, slots=9, busy_slots=0)
    assert settled(fleet, waiting)[:2] == (other, None)


def test_an_unknown_adapter_is_rejected_when_all_have_reported() -> None:
    for asked in ({"adapter": "poet"}, {"adapter_numbers": frozenset({1})}):
        fleet = SteeredFleet()
        fleet.add(9, models=["m"], adapters=["bard"])
        late = fleet.join()
        waiting = fleet.queue(**asked)
        assert fleet.is_waiting(waiting)
        scrape(fleet, late, **READY, adapters=["bard"])
        assert rejected(fleet, waiting) == "model-not-found"
        assert fleet.rejection(**asked) == "model-not-found"


def test_a_request_whose_adapter_cannot_be_sent_is_rejected() -> None:
    """Its body is sent unchanged, or has numbers of its own; with a name that is no adapter's it is
    served."""
    for asked in ({"is_verbatim": True}, {"adapter_numbers": frozenset({0})}):
        for name, reason in ((POET, "bad-request"), ({"model": "m:latest"}, None)):
            fleet = SteeredFleet()
            late = fleet.join()
            waiting = fleet.queue(**name, **asked)
            scrape(fleet, late, **READY, adapters=["poet"])
            if reason is None:
                settled(fleet, waiting)
            else:
                assert rejected(fleet, waiting) == reason


def test_it_is_queued_by_its_base_name() -> None:
    """For its base's objective, at its position, with its slots, until its deadline."""
    gold = Objective(name="gold", criticality=Criticality.CRITICAL)
    fleet = SteeredFleet(gold, by_model={"m": "gold"})
    late = fleet.join()
    first = fleet.queue(model="m:poet", weight_slots=2)
    second = fleet.queue(model="m:poet")
    mortal = fleet.queue(model="m:poet", timeout_s=1.5)
    assert first.criticality is Criticality.CRITICAL
    fleet.now += 1.0
    scrape(fleet, late, status=ScrapeStatus.LOADING)
    fleet.dispatcher.advance(fleet.now)
    assert rejected(fleet, mortal) == "no-endpoint"
    scrape(fleet, late, **READY, adapters=["poet"])
    lease = fleet.served(first)
    assert lease.weight_slots == 2 and fleet.is_waiting(second)
    fleet.finish(lease)
    assert settled(fleet, second) == (late, 0, "m")


def test_a_full_queue_rejects_it() -> None:
    """As if no endpoint were eligible: at a retry all may have reported."""
    fleet = SteeredFleet(queue_max_requests=0)
    fleet.add(9, models=["m"])
    fleet.join()
    assert fleet.rejection(**POET) == "no-endpoint"
    assert fleet.rejection(**POET, timeout_s=0.0) == "no-endpoint"


def test_another_process_has_its_own_adapters() -> None:
    """The adapters of the old process are not assumed before the new one has reported."""
    fleet = SteeredFleet()
    address = fleet.add(2, models=["m"], adapters=["bard", "poet"], instance="one")
    fleet.finish(fleet.pick(adapter="poet"))
    scrape(fleet, address, **READY, instance="two", awaits_adapters=True)
    waiting = fleet.queue(adapter="poet")
    scrape(fleet, address, **READY, instance="two", adapters=["poet"])
    assert settled(fleet, waiting)[:2] == (address, 0)


def test_a_server_that_left_with_running_requests_is_not_waited_for() -> None:
    """A new process had replaced it and reported nothing yet."""
    fleet = SteeredFleet()
    leaving = fleet.add(1, models=["m"], instance="one")
    fleet.pick()
    staying = fleet.add(1, models=["m"])
    scrape(fleet, leaving, status=ScrapeStatus.LOADING, instance="two")
    waiting = fleet.queue(**POET)
    fleet.dispatcher.set_members("test", [EndpointSpec(address=staying)], fleet.now)
    assert leaving in fleet.dispatcher.fleet
    scrape(fleet, staying, slots=1, busy_slots=0)
    assert settled(fleet, waiting)[:2] == (staying, None)


def test_a_new_model_decides_nothing_about_adapters() -> None:
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    second, third = fleet.join(), fleet.join()
    waiting = fleet.queue(model="x", adapter="poet")
    scrape(fleet, second, slots=2, busy_slots=0, models=["x"])
    assert fleet.is_waiting(waiting)
    scrape(fleet, third, slots=2, busy_slots=0, models=["x"], adapters=["poet"])
    assert settled(fleet, waiting) == (third, 0, "x")


@pytest.mark.parametrize("name", ["m:poet", ":poet"])
def test_it_finds_its_prompt_in_the_cache_under_the_resolved_name(name: str) -> None:
    """The chain of its prompt was computed before the name was known to be an adapter's."""
    fleet = SteeredFleet()
    late = fleet.join()
    names = fleet.dispatcher.state.resolver.names

    def chain_of(model: str | None, adapter: str | None) -> tuple[int, ...]:
        return chain(names.cache_key_seed(model, adapter, frozenset()), "row " * 1000)

    waiting = fleet.queue(model=name, prompt_blocks=chain_of(name, None), prompt_tokens=1000)
    scrape(fleet, late, **READY, adapters=["poet"])
    model = "m" if name == "m:poet" else None
    assert waiting.request.prompt_blocks == chain_of(model, "poet")


def test_explain_shows_which_servers_it_waits_for() -> None:
    """And does not remember the name."""
    fleet = SteeredFleet()
    fleet.add(9, models=["m"])
    request = Request(id="r", timeout_s=60.0, model="m:poet")
    assert explain(fleet.dispatcher.view, request).chosen is not None
    fleet.join()
    explanation = explain(fleet.dispatcher.view, request)
    assert (explanation.chosen, explanation.position) == (None, 1)
    assert all("adapters" in candidate.filtered[0] for candidate in explanation.candidates)


def test_remembered_names_are_bounded() -> None:
    fleet = SteeredFleet()
    fleet.add(1, models=["m"])
    names = fleet.dispatcher.state.resolver.names
    for number in range(MAX_REMEMBERED + 1):
        names.remember_as_model(f"m:{number}")
    fleet.join()
    fleet.queue(model="m:0")
    fleet.pick(model=f"m:{MAX_REMEMBERED}")


def test_a_name_waits_for_a_machine_that_has_not_named_its_models() -> None:
    """One of its servers reports a model; its keeper may name more. An unknown adapter is waited
    for like an unknown model."""
    fleet = SteeredFleet()
    spec = EndpointSpec(address=Address("10.0.0.9", 8000), kept_models=2)
    fleet.dispatcher.set_members("agents", [spec], fleet.now)
    fleet.scrape(spec.address, **READY)
    waiting = [fleet.queue(model="other"), fleet.queue(model="other:poet")]
    assert fleet.pick(model="m").address == spec.address
    fleet.dispatcher.set_loadable(
        "gpu",
        {"other": ModelReading(name="other", is_loaded=False)},
        fleet.now,
        frozenset({spec.address}),
    )
    assert fleet.is_waiting(waiting[0]) and waiting[0].constraints.model == "other"
