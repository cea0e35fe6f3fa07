"""Claims about extproc/core/fleet/resolver.py: the names in requests, in a fleet."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from extproc.core.decision import Picked
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import Intent
from extproc.core.fleet.resolver import RequestResolver, ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.observation import ModelReading
from extproc.core.prompt_blocks import chain
from extproc.core.request import Request, ResolvedRequest
from tests.fakes.steered_fleet import SteeredFleet


def test_an_unknown_model_may_go_anywhere_unless_strict() -> None:
    lenient, strict = SteeredFleet(), SteeredFleet(match=ModelMatch.STRICT)
    for fleet in (lenient, strict):
        fleet.add(1, models=[ModelReading(name="tiny", aliases=("t",))])
    lenient.pick(model="whatever")
    assert strict.rejection(model="whatever") == "model-not-found"
    strict.pick(model="t")


def test_a_strict_fleet_waits_for_a_model_that_is_only_gone() -> None:
    """Its server left; the name is known. Before the first scrape, requests for any name are
    queued."""
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    early = fleet.queue(model="a")
    gone = fleet.add(1, models=["a"])
    lease = fleet.served(early)
    fleet.finish(lease)
    fleet.dispatcher.set_members("test", [], fleet.now)
    assert gone not in fleet.dispatcher.fleet
    fleet.addresses.clear()
    waiting = fleet.queue(model="a")
    fleet.add(1, models=["b"])
    assert fleet.is_waiting(waiting)
    fleet.now += 1
    fleet.add(1, models=["a"])
    assert not fleet.is_waiting(waiting)


def test_a_request_for_a_lost_model_may_go_anywhere_if_lenient() -> None:
    fleet = SteeredFleet()
    first = fleet.add(1, models=["a"])
    second = fleet.add(1, models=["b"])
    lease = fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    fleet.now += 1
    fleet.scrape(first, models=["c"], slots=1, busy_slots=1)
    assert fleet.served(waiting).address == second
    fleet.finish(lease)


def test_a_request_for_a_lost_model_remains_queued_if_strict() -> None:
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    first = fleet.add(1, models=["a"])
    fleet.add(9, models=["b"])
    fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    fleet.now += 1
    fleet.scrape(first, models=["c"], slots=1, busy_slots=1)
    assert fleet.is_waiting(waiting)
    fleet.now += 1
    third = fleet.add(1, models=["a"])
    assert fleet.served(waiting).address == third


def test_a_strict_request_goes_to_servers_of_its_model_only() -> None:
    """Whatever other requests may do: an unknown model is rejected, a lost one is waited for."""
    fleet = SteeredFleet()
    first = fleet.add(1, models=["a"])
    fleet.add(9, models=["b"])
    assert fleet.rejection(model="unknown", is_strict=True) == "model-not-found"
    assert fleet.pick(model="a", is_strict=True).address == first
    waiting = fleet.queue(model="a", is_strict=True)
    fleet.now += 1
    fleet.scrape(first, models=["c"], slots=1, busy_slots=1)
    assert fleet.is_waiting(waiting)
    late = fleet.queue(model="a", is_strict=True)
    fleet.now += 1
    third = fleet.add(2, models=["a"])
    assert fleet.served(waiting).address == fleet.served(late).address == third


def test_whether_a_model_is_among_some_names() -> None:
    """By any name of the model; one that stands for several only if all of them are."""
    fleet = SteeredFleet(splits={"chat": {"a": 1.0, "b": 1.0}, "alias": {"a": 1.0}})
    fleet.add(1, models=[ModelReading(name="a", aliases=("short", "common"))])
    fleet.add(1, models=[ModelReading(name="b", aliases=("common",))])
    resolver = fleet.dispatcher.resolver
    for names, among in (
        ({"a"}, {"a", "short", "alias"}),
        ({"short"}, {"a", "short", "alias"}),
        ({"chat"}, {"chat"}),
        ({"a", "b"}, {"a", "short", "b", "chat", "alias", "common"}),
        ({"unknown"}, {"unknown"}),
        ({"common"}, {"common", "a", "short", "b", "chat", "alias"}),
    ):
        found = {
            name
            for name in ("a", "short", "b", "chat", "alias", "unknown", "common")
            if resolver.is_among(name, frozenset(names))
        }
        assert found == among, names


def test_a_hint_without_an_eligible_endpoint_is_rejected() -> None:
    """The allowed endpoint is down, drained, or serves another model: the next hint may name
    others."""
    fleet = SteeredFleet()
    one, two = fleet.add(1, models=["a"], adapters=["bard"]), fleet.add(1, models=["b"])
    hint = frozenset({one})
    fleet.pick(allowed=hint)
    fleet.queue(allowed=hint, model="a", adapter="bard")
    assert fleet.rejection(allowed=hint, model="b") == "no-endpoint"
    assert fleet.rejection(allowed=frozenset({two}), adapter="bard") == "no-endpoint"
    assert fleet.rejection(allowed=hint, model="b", adapter="nobody") == "model-not-found"
    fleet.dispatcher.set_intent(one, Intent.DRAINING, fleet.now)
    assert fleet.rejection(allowed=hint) == "no-endpoint"
    fleet.dispatcher.set_intent(one, Intent.ACTIVE, fleet.now)
    fleet.queue(allowed=hint)
    fleet.dispatcher.connect_failed(one, fleet.now)
    assert fleet.rejection(allowed=hint) == "no-endpoint"
    fleet.queue(model="a")


def test_adapters() -> None:
    """Only servers that have it; the request gets the picked server's number of it."""
    fleet = SteeredFleet()
    fleet.add(4, models=["m"], adapters=["bard"])
    has_it = fleet.add(1, models=["m"], adapters=["bard", "pirate"])
    outcome = fleet.submit(adapter="pirate")
    assert isinstance(outcome, Picked)
    assert (outcome.lease.address, outcome.adapter_id, outcome.fallbacks) == (has_it, 1, ())
    fleet.queue(adapter="pirate")
    assert fleet.rejection(adapter="nobody-has-it") == "model-not-found"


def test_an_adapter_with_an_empty_name_matches_no_request() -> None:
    """A request that names no adapter is sent with none."""
    fleet = SteeredFleet()
    fleet.add(1, adapters=[""])
    outcome = fleet.submit()
    assert isinstance(outcome, Picked) and outcome.adapter_id is None


def test_adapters_by_number() -> None:
    """Only servers that have these numbers; if no server reported any, all are possible."""
    fleet = SteeredFleet()
    bare = fleet.add(1, models=["m"])
    fleet.finish(fleet.pick(adapter_numbers=frozenset({1})))
    fleet.add(4, models=["m"], adapters=["bard"])
    has_it = fleet.add(1, models=["m"], adapters=["bard", "pirate"])
    lease = fleet.pick(adapter_numbers=frozenset({1}))
    assert lease.address == has_it != bare
    waiting = fleet.queue(adapter_numbers=frozenset({0, 1}))
    assert fleet.rejection(adapter_numbers=frozenset({2})) == "model-not-found"
    fleet.finish(lease)
    assert fleet.served(waiting).address == has_it


def resolver_of(fleet: SteeredFleet) -> RequestResolver:
    return fleet.dispatcher.resolver


@pytest.mark.parametrize("match", ModelMatch)
@pytest.mark.parametrize("must_know_models", [True, False])
def test_a_request_must_show_its_model_only_where_several_are_served(
    match: ModelMatch, must_know_models: bool
) -> None:
    """If matching is strict, or the settings want it. What counts needs it also for a 404."""
    is_strict = match is ModelMatch.STRICT
    fleet = SteeredFleet(match=match)
    resolver = resolver_of(fleet)
    resolver.renew(ResolverOptions(model_match=match, must_know_models=must_know_models))
    fleet.add(1, models=["a"])
    assert (resolver.must_know_models, resolver.routes_by_model) == (False, is_strict)
    fleet.add(1, models=["b"])
    assert resolver.must_know_models == (is_strict or must_know_models)
    assert resolver.routes_by_model


def test_a_dry_run_leaves_no_trace() -> None:
    """It draws from its own random numbers, and remembers no name."""
    fleet = SteeredFleet(splits={"chat": {"a": 1.0, "b": 1.0}})
    fleet.add(1, models=["a", "b"])
    resolver = resolver_of(fleet)
    before = resolver._random.getstate()
    for model in ("chat", "unknown"):
        resolver.resolve(Request(id="r", timeout_s=1.0, model=model), Random(7))
    assert resolver._random.getstate() == before
    assert not resolver.models.was_ever_known("unknown")


def test_an_alias_in_a_body_that_cannot_change_goes_where_its_name_is_known() -> None:
    """The server reads that name itself: of the split's models only the one that is served under
    it remains."""
    splits = {"chat": {"a": 1.0, "b": 99.0}}
    fleet = SteeredFleet(splits=splits)
    fleet.add(2, models=[ModelReading(name="b", slots=2)])
    assert fleet.rejection(model="chat", is_verbatim=True) == "bad-request"
    knows_it = fleet.add(4, models=[ModelReading(name="a", aliases=("chat",), slots=4)])
    for _ in range(4):
        assert fleet.pick(model="chat", is_verbatim=True).address == knows_it
    assert fleet.pick(model="chat").address != knows_it, "this one can be rewritten"


def test_an_alias_of_models_that_nobody_serves_waits_for_them() -> None:
    """To rewrite it may be impossible, but no server has been found that needs it."""
    fleet = SteeredFleet(splits={"chat": {"a": 1.0}}, match=ModelMatch.STRICT)
    ticket = fleet.queue(model="chat", is_verbatim=True)
    assert fleet.is_waiting(ticket)


def test_a_lenient_request_is_bound_again_when_its_model_appears() -> None:
    """It was queued for any endpoint: from then on only for the model's."""
    fleet = SteeredFleet()
    other = fleet.add(1, models=["b"])
    lease = fleet.pick()
    waiting = fleet.queue(model="a")
    assert waiting.constraints.model != "a"
    serves_it = fleet.join()
    fleet.scrape(serves_it, slots=1, busy_slots=1, models=["a"])
    assert waiting.constraints.model == "a"
    fleet.finish(lease)
    assert fleet.is_waiting(waiting), f"{other} does not serve it"
    fleet.now += 1.0
    fleet.scrape(serves_it, slots=1, busy_slots=0, models=["a"])
    assert fleet.served(waiting).address == serves_it


def test_equal_prompts_under_two_names_of_a_model_are_one_prompt() -> None:
    """An alias of the settings and the model's own name use the same cache."""
    fleet = SteeredFleet(splits={"chat": {"a": 1.0}})
    fleet.add(1, models=["a"])
    resolver = resolver_of(fleet)

    def blocks(model: str) -> tuple[int, ...]:
        seed = resolver.names.cache_key_seed(model, None, frozenset())
        request = Request(
            id="r", timeout_s=1.0, model=model, prompt_blocks=chain(seed, "row " * 999)
        )
        resolved = resolver.resolve(request)
        assert isinstance(resolved, ResolvedRequest)
        return resolver.apply(request, resolved).prompt_blocks

    assert blocks("chat") == blocks("a") != blocks("b")


def test_a_server_that_left_before_it_was_expected_changes_nothing() -> None:
    fleet = SteeredFleet()
    fleet.add(1, models=["a"])
    resolver_of(fleet).expect(fleet.addresses[0]._replace(port=1))
    fleet.pick(model="a")


def test_requests_keep_what_they_were_resolved_to() -> None:
    """A change of splits, matching and objectives is for later requests: what runs and what is
    queued goes on as it began, with its model and its objective."""
    fleet = SteeredFleet(splits={"chat": {"a": 1}})
    first = fleet.add(1, models=["a"])
    second = fleet.add(1, models=["b"])
    lease = fleet.pick(model="chat")
    assert lease.address == first
    waiting = fleet.queue(model="chat")
    gold = Objective(name="gold", criticality=Criticality.CRITICAL)
    options = fleet.dispatcher.options
    fleet.dispatcher.renew(
        replace(
            options,
            resolver=ResolverOptions(
                model_match=ModelMatch.STRICT,
                splits={"talk": {"b": 1}},
                objectives=Objectives(by_name={"gold": gold}, by_model={"talk": "gold"}),
            ),
        )
    )
    assert fleet.rejection(model="chat") == "model-not-found"
    assert fleet.pick(model="talk").address == second
    later = fleet.queue(model="talk")
    assert (waiting.objective.name, later.objective.name) == ("", "gold")
    fleet.finish(lease)
    assert fleet.served(waiting).address == first and fleet.is_waiting(later)
    assert not fleet.dispatcher.faults(fleet.now)
