"""Claims about extproc/core/scheduler/rule_filters.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extproc.core.address import Address
from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.rejection import NONE_BY_RULES, Reason
from extproc.core.request import Request
from extproc.core.views.explain import explain
from extproc.core.views.waits import WaitReason
from extproc.rules import v1
from extproc.rules.active_rules import ActiveRules, Used
from extproc.rules.loading import LoadedRule
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

Filter = Callable[[v1.Request, v1.Endpoint], object]


def use(fleet: SmallFleet | SteeredFleet, *filters: Filter) -> ActiveRules:
    loaded = [LoadedRule(f"R{n}", one, None, None) for n, one in enumerate(filters)]
    rules = ActiveRules(loaded, clock=lambda: 0.0)
    fleet.dispatcher.set_rules(rules, fleet.now)
    return rules


def request(**asked: Any) -> Request:
    return Request(**{"id": "r", "timeout_s": 60.0, **asked})


def only_at(*addresses: Address, tenant: str = "pinned") -> Filter:
    places = set(map(str, addresses))
    return lambda asked, there: (
        asked.fairness_id != tenant or (there.address in places or "not there")
    )


def test_a_request_that_may_go_nowhere_waits_and_says_why() -> None:
    """It is queued with its reason, holds nobody up, and is rejected at its deadline."""
    fleet = SteeredFleet()
    one, two = fleet.add(1), fleet.add(1)
    use(fleet, only_at())
    ticket = fleet.queue(fairness_id="pinned", timeout_s=5.0)
    assert fleet.pick().address in {one, two} and fleet.pick().address in {one, two}
    waits = fleet.dispatcher.view.waits()
    assert waits.reason_of(ticket) is WaitReason.EXCLUDED_BY_RULE
    note = "the rule R0 excludes every endpoint that could serve it: not there"
    assert fleet.dispatcher.view.queue_note(ticket.resolved, ticket.request, fleet.now) == note
    explained = explain(fleet.dispatcher.view, ticket.request, fleet.now)
    assert (explained.reason, explained.position, explained.note) == (None, 2, note)
    why = "the rule R0 excludes it: not there"
    assert all(why in one.filtered for one in explained.candidates)
    fleet.pass_time(6.0)
    rejected = fleet.listener.settlements[ticket.id]
    assert (rejected.reason, rejected.detail) == (Reason.NO_ENDPOINT, NONE_BY_RULES)  # type: ignore[union-attr]
    assert fleet.rejection(fairness_id="pinned", timeout_s=0.0) == "no-endpoint"


def test_the_endpoints_that_a_rule_leaves_are_shared_as_always() -> None:
    """A pinned request waits for its own endpoint while another is idle, and is served in turn."""
    fleet = SmallFleet(1, 1)
    mine, other = fleet.addresses
    use(fleet, only_at(mine))
    running = fleet.dispatcher.submit(request(allowed=frozenset({mine})), fleet.now)
    pinned = fleet.dispatcher.submit(request(fairness_id="pinned"), fleet.now)
    assert fleet.pick().address == other
    last = fleet.queue()
    fleet.finish(running.lease)  # type: ignore[union-attr]
    assert fleet.handed(pinned.ticket).address == mine  # type: ignore[union-attr]
    assert last.is_waiting


def test_an_endpoint_that_joins_is_asked_about_for_the_queue() -> None:
    """One that a filter excludes serves no queued request of the tenant, though all others of the
    fleet might have; one that it leaves serves it."""
    fleet = SteeredFleet()
    first = fleet.add(1)
    coming = Address("10.0.0.1", 8001), Address("10.0.0.1", 8002)
    use(fleet, only_at(first, coming[1]))
    fleet.pick()
    pinned = fleet.queue(fairness_id="pinned")
    assert pinned.constraints.by_rules is None, "all of this fleet may serve it"
    other = fleet.queue()
    assert fleet.add(2) == coming[0]
    assert pinned.is_waiting and not other.is_waiting
    assert fleet.add(1) == coming[1]
    assert not pinned.is_waiting


def test_what_changes_at_an_endpoint_is_asked_about_again() -> None:
    """Its labels, when the settings are reloaded, and the models that it reports."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    use(fleet, lambda _, there: there.labels.get("open") == "yes" and "tiny" in there.models)
    ticket = fleet.queue()
    fleet.scrape(address, slots=1, busy_slots=0, models=["tiny"])
    assert ticket.is_waiting
    spec = EndpointSpec(address=address, labels=(("open", "yes"),))
    fleet.dispatcher.set_members("test", [spec], fleet.now)
    assert not ticket.is_waiting


def test_filters_that_change_with_the_time() -> None:
    """One that has come to exclude an endpoint is heard before a slot is given; one that has come
    to leave it, a second later."""
    fleet = SmallFleet(1)
    is_open = True
    use(fleet, lambda *_: is_open)
    running, ticket = fleet.pick(), fleet.queue()
    is_open = False
    fleet.finish(running)
    assert ticket.is_waiting
    fleet.pass_time(5.0)
    assert ticket.is_waiting
    is_open = True
    fleet.pass_time(1.5)
    assert not ticket.is_waiting


def test_the_queue_is_asked_about_in_parts() -> None:
    """A long queue takes several rounds, each of a bounded length."""
    fleet = SmallFleet(*[1] * 100, queue_max_requests=1000)
    asked = 0
    is_open = False

    def filter_(*_: object) -> bool:
        nonlocal asked
        asked += 1
        return is_open

    use(fleet, filter_)
    tickets = [fleet.queue(timeout_s=600.0) for _ in range(60)]
    fleet.pass_time(1.1)
    for _ in range(5):
        before = asked
        fleet.pass_time(1.0)
        assert asked - before == 2000
    is_open = True
    fleet.pass_time(4.0)
    assert not any(ticket.is_waiting for ticket in tickets)


def test_a_rule_that_is_switched_off_lets_the_queue_go() -> None:
    """The answers of one that is too slow count until then, and no longer."""
    fleet = SmallFleet(1)
    took_s = 0.0

    def filter_(*_: object) -> bool:
        nonlocal took_s
        took_s += 0.003
        return False

    rules = ActiveRules(
        [LoadedRule("Slow", filter_, None, None)],
        clock=lambda: took_s,
        used=lambda: Used(took_s, 0),
    )
    fleet.dispatcher.set_rules(rules, fleet.now)
    ticket = fleet.queue()
    assert ticket.is_waiting and not rules.problems()
    fleet.pass_time(3.0)
    assert rules.problems() and not ticket.is_waiting


def test_a_rule_that_goes_off_while_it_excludes_excludes_nothing() -> None:
    """Its third failure comes when a queued request that it excludes is asked about again."""
    fleet = SmallFleet(1)
    answers: list[bool] = []

    def filter_(*_: object) -> bool:
        if not answers:
            raise ValueError
        return answers.pop()

    answers += [True] * 2
    rules = use(fleet, filter_)
    running, ticket = fleet.pick(), fleet.queue()
    for _ in range(2):
        rules.allowed(request(), [fleet.endpoint(fleet.addresses[0])])
    answers.append(False)
    fleet.finish(running)
    assert rules.problems() and fleet.handed(ticket).address == fleet.addresses[0]


def test_other_rules_apply_to_the_queue_at_once() -> None:
    """Rules that a reload brings, and their end."""
    fleet = SmallFleet(1)
    use(fleet, lambda *_: False)
    first, second = fleet.queue(), fleet.queue()
    use(fleet, lambda *_: True)
    assert not first.is_waiting and second.is_waiting
    use(fleet, lambda *_: False)
    fleet.finish(fleet.handed(first))
    assert second.is_waiting
    fleet.dispatcher.set_rules(None, fleet.now)
    assert fleet.listener.settlements[second.id]
    assert fleet.dispatcher.view.rules is None


def test_a_reservation_is_given_back_when_a_rule_moves_its_request() -> None:
    """The slots that were reserved go to the request that waits behind it."""
    fleet = SmallFleet(2, 1)
    wide, _ = fleet.addresses
    is_open = True
    use(fleet, lambda asked, there: is_open or asked.slots == 1 or there.address != str(wide))
    running = [fleet.pick(), fleet.pick(), fleet.pick()]
    heavy = fleet.queue(weight_slots=2)
    light = fleet.queue()
    (first, _) = (lease for lease in running if lease.address == wide)
    fleet.finish(first)
    assert heavy.reservation is not None and light.is_waiting
    is_open = False
    fleet.pass_time(1.5)
    assert heavy.reserved_at == wide and heavy.is_waiting
    assert fleet.handed(light).address == wide
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_rule_that_contradicts_itself_ends_no_call_in_a_loop() -> None:
    """Asked about all endpoints it leaves them, asked about one it does not. Each call takes
    endpoints away, until the request is asked about again."""
    fleet = SmallFleet(1, 1, 1)
    asked = 0

    def filter_(*_: object) -> bool:
        nonlocal asked
        asked += 1
        return asked % 2 == 1 or asked < 4

    use(fleet, lambda *_: True)
    running = [fleet.pick() for _ in range(3)]
    ticket = fleet.queue()
    use(fleet, filter_)
    for lease in running:
        fleet.finish(lease)
    fleet.pass_time(3.0)
    assert fleet.dispatcher.faults(fleet.now) == [] and asked < 100
    assert ticket.id in fleet.listener.settlements or ticket.is_waiting


def test_a_name_that_is_not_known_yet_is_not_asked_about() -> None:
    """Neither when rules are reloaded, nor later."""
    fleet = SteeredFleet()
    fleet.join()
    ticket = fleet.queue(model="tiny:lora")
    use(fleet, lambda *_: False)
    fleet.pass_time(2.5)
    assert ticket.constraints == UNRESOLVED


def test_a_queued_prompt_that_fits_no_endpoint_that_rules_leave_goes_there() -> None:
    """The server says so in words; where the request arrived, another endpoint had the context."""
    fleet = SteeredFleet()
    small, large = fleet.add(1, context_tokens=1000), fleet.add(1, context_tokens=100_000)
    fleet.pick(allowed=frozenset({large}))
    ticket = fleet.queue(prompt_tokens=50_000, prompt_chars=400_000, fairness_id="pinned")
    use(fleet, only_at(small))
    settlement = fleet.listener.settlements[ticket.id]
    assert settlement.lease.address == small  # type: ignore[union-attr]


def test_a_request_waits_for_servers_that_are_down_whatever_rules_say() -> None:
    """Its reason is that none is up, not the rule."""
    fleet = SteeredFleet()
    one, two = fleet.add(1), fleet.add(1)
    use(fleet, only_at(one))
    for address in (one, two):
        fleet.scrape(address, status=ScrapeStatus.UNREACHABLE)
    ticket = fleet.queue(fairness_id="pinned")
    assert fleet.dispatcher.view.waits().reason_of(ticket) is WaitReason.NO_ENDPOINT
    assert fleet.dispatcher.view.queue_note(ticket.resolved, ticket.request, fleet.now) == ""


def test_explain_says_which_rule_is_switched_off() -> None:
    fleet = SmallFleet(1)

    def fail(*_: object) -> bool:
        raise ValueError

    use(fleet, fail)
    for _ in range(3):
        fleet.finish(fleet.pick())
    details = explain(fleet.dispatcher.view, request(), fleet.now).resolved
    assert details["rules"].startswith("the rule R0 is switched off")


def test_rules_and_a_gateways_subset_both_hold() -> None:
    fleet = SmallFleet(1, 1, 1)
    one, two, three = fleet.addresses
    use(fleet, only_at(one, two))
    for _ in range(5):
        asked = request(fairness_id="pinned", allowed=frozenset({two, three}))
        decision = fleet.dispatcher.submit(asked, fleet.now)
        assert decision.lease.address == two  # type: ignore[union-attr]
        assert decision.fallbacks == ()  # type: ignore[union-attr]
        fleet.finish(decision.lease)  # type: ignore[union-attr]


def test_a_context_is_looked_for_among_the_endpoints_that_rules_leave() -> None:
    """A prompt that is too long for these is rejected, though another endpoint has the context."""
    fleet = SteeredFleet()
    small = fleet.add(1, context_tokens=1000)
    fleet.add(1, context_tokens=100_000)
    use(fleet, only_at(small))
    asked = {"prompt_tokens": 50_000, "prompt_chars": 400_000}
    assert fleet.rejection(**asked, fairness_id="pinned") == "context-length-exceeded"
    fleet.pick(**asked)


def test_names_that_no_server_has_reported_yet_are_asked_about_later() -> None:
    """The request goes where rules let it once its name is known."""
    fleet = SteeredFleet()
    one, two = fleet.join(), fleet.join()
    use(fleet, only_at(two))
    ticket = fleet.queue(model="tiny:lora", fairness_id="pinned")
    for address in (one, two):
        fleet.scrape(address, slots=1, busy_slots=0, models=["tiny"], adapters=["lora"])
    settlement = fleet.listener.settlements[ticket.id]
    assert settlement.lease.address == two  # type: ignore[union-attr]


def test_a_critical_request_bypasses_no_rule() -> None:
    """Reserved slots of an endpoint that is excluded are not for it."""
    fleet = SteeredFleet(Objective(name="now", criticality=Criticality.CRITICAL))
    address = fleet.add(2)
    fleet.pick()
    fleet.queue(weight_slots=2)
    use(fleet, only_at())
    fleet.dispatcher.withdraw(fleet.queue(objective="now", fairness_id="pinned"), fleet.now)
    assert fleet.pick(objective="now").address == address


def test_requests_that_take_no_slot_are_constrained_too() -> None:
    fleet = SmallFleet(1, 1)
    use(fleet, only_at(fleet.addresses[1]))
    asked = request(fairness_id="pinned")
    constrained = fleet.dispatcher.view.constrain(Constraints(), asked)
    assert fleet.dispatcher.passing(constrained) == [fleet.addresses[1]]
    assert fleet.dispatcher.view.constrain(Constraints(), request()) == Constraints()


def test_costs_of_rules_decide_among_free_slots_only() -> None:
    """The cheapest of all endpoints with a free slot, however loaded; a busy one is not waited for,
    and what a rule adds is part of what an affinity saves."""
    fleet = SteeredFleet()
    for _ in range(8):
        fleet.add(4)
    cheap = fleet.addresses[5]
    rules = ActiveRules(
        [LoadedRule("Price", None, lambda _, there: 9.0 * (there.address != str(cheap)), None)]
    )
    fleet.dispatcher.set_rules(rules, fleet.now)
    assert [fleet.pick().address for _ in range(4)] == [cheap] * 4
    assert fleet.pick().address != cheap
    explained = explain(fleet.dispatcher.view, request(), fleet.now)
    shown = {one.address: {s.name: s.value for s in one.scores} for one in explained.candidates}
    assert shown[cheap]["Price"] == 0.0 and shown[fleet.addresses[0]]["Price"] == 9.0
    assert shown[fleet.addresses[0]]["cost_s"] > 9.0


def test_a_router_serves_what_its_rules_leave() -> None:
    """Models of a router have slots of their own, and rules see them by name."""
    fleet = SteeredFleet()
    readings = [ModelReading(name=name, slots=2, busy_slots=0) for name in ("a", "b")]
    address = fleet.add(8, models=readings)
    use(fleet, lambda asked, there: asked.model == "a" and "b" in there.models)
    assert fleet.pick(model="a").address == address
    assert fleet.queue(model="b").is_waiting
