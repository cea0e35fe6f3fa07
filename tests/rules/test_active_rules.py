"""Claims about extproc/rules/active_rules.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.request import Kind, Request
from extproc.rules import v1
from extproc.rules.active_rules import ActiveRules, Used
from extproc.rules.loading import LoadedRule

REQUEST = Request(id="r", timeout_s=1.0, tenant="client-clinic", path="/v1/embeddings")


def endpoint(number: int = 1, **labels: str) -> Endpoint:
    address = Address("10.0.0.1", number)
    spec = EndpointSpec(address=address, name=f"gpu-{number}", labels=tuple(labels.items()))
    return Endpoint(spec)


def rule(
    name: str = "Mine",
    filter: Callable[[v1.Request, v1.Endpoint], object] | None = None,  # noqa: A002
    cost: Callable[[v1.Request, v1.Endpoint], object] | None = None,
    admit: Callable[[v1.Request], object] | None = None,
) -> LoadedRule:
    return LoadedRule(name, filter, cost, admit)


class Clock:
    """Goes on by what a rule takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def used(self) -> Used:
        return Used(self.now, 0)

    def take(self, seconds: float, answer: object = True) -> Callable[..., object]:
        def ask(*_: object) -> object:
            self.now += seconds
            return answer

        return ask


def test_rules_see_what_is_documented() -> None:
    """The views of a request and of an endpoint, and those after the endpoint has changed."""
    seen: list[Any] = []

    def look(request: v1.Request, there: v1.Endpoint) -> bool:
        seen.append((request, there))
        return True

    rules = ActiveRules([rule(filter=look)], unix_time=lambda: 7.0)
    one = endpoint(8080, region="eu")
    request = Request(
        id="r",
        timeout_s=1.0,
        kind=Kind.EMBEDDING,
        weight_slots=2,
        model="tiny",
        tenant="client-clinic",
        path="/v1/embeddings",
        objective="batch",
        prompt_tokens=3,
    )
    assert rules.allowed(request, [one]) is None
    shown, there = seen[0]
    assert shown == v1.Request(
        id="r",
        path="/v1/embeddings",
        kind="embedding",
        model="tiny",
        objective="batch",
        tenant="clinic",
        prompt_tokens=3,
        slots=2,
        time=7.0,
    )
    assert there == v1.Endpoint(name="gpu-8080", address="10.0.0.1:8080", labels={"region": "eu"})
    with pytest.raises(TypeError):
        there.labels["region"] = "us"
    one.observe(
        Observation(
            address=one.address,
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            models=(ModelReading(name="tiny"),),
            context_tokens=4096,
            runner="ollama",
            apis=frozenset(),
        ),
        HealthOptions(),
    )
    one.spec = EndpointSpec(address=one.address, labels=(("region", "us"),))
    rules.allowed(request, [one])
    there = seen[1][1]
    assert (there.models, there.context_tokens, there.name) == (frozenset({"tiny"}), 4096, "")
    assert there.runner == "ollama"
    assert there.labels == {"region": "us"}


def test_a_tenant_whose_key_nobody_checked_has_no_name() -> None:
    """Its key is a hash here, and no rule can know it."""
    shown: list[v1.Request] = []
    rules = ActiveRules([rule(admit=shown.append)])
    rules.admit(Request(id="r", timeout_s=1.0, tenant="a-hash"))
    assert shown[0].tenant == ""


def test_filters_exclude_together_and_say_why() -> None:
    """None stands for all; each says its own reason; a note says which leave nothing."""
    one, two = endpoint(1, region="eu"), endpoint(2, region="us")

    def region(_: v1.Request, there: v1.Endpoint) -> bool | str:
        return there.labels["region"] == "eu" or "its data stays in eu"

    rules = ActiveRules([rule("Region", region), rule("All", lambda *_: True)])
    assert rules.allowed(REQUEST, [one]) is None
    assert rules.allowed(REQUEST, [one, two]) == frozenset({one.address})
    assert rules.why_not(REQUEST, one) == []
    assert rules.why_not(REQUEST, two) == ["the rule Region excludes it: its data stays in eu"]
    assert rules.why_nowhere(REQUEST, [one, two]) == ""
    nowhere = "the rule Region excludes every endpoint that could serve it: its data stays in eu"
    assert rules.why_nowhere(REQUEST, [two]) == nowhere
    both = ActiveRules([rule("A", region), rule("B", lambda _, there: there.name == "gpu-2")])
    assert both.allowed(REQUEST, [one, two]) == frozenset()
    assert both.why_nowhere(REQUEST, [one, two]).startswith("the rules A, B exclude every")
    assert both.why_not(REQUEST, one) == ["the rule B excludes it"]


def test_costs_are_added_and_named() -> None:
    rules = ActiveRules([rule("A", cost=lambda *_: 1), rule("B", cost=lambda *_: 0.5)])
    assert list(rules.costs(REQUEST, endpoint())) == [("A", 1.0), ("B", 0.5)]
    assert rules.cost_s(REQUEST, endpoint()) == 1.5
    assert (rules.has_filters, rules.has_costs) == (False, True)


def test_a_long_reason_is_cut_and_holds() -> None:
    """A rule that rejects, however long it explains that, must not let a request pass."""
    why = "x" * 10_000
    rules = ActiveRules([rule("A", filter=lambda *_: why, admit=lambda _: v1.Reject(why))])
    assert rules.admit(REQUEST) == why[:500]
    assert rules.why_not(REQUEST, endpoint()) == [f"the rule A excludes it: {why[:500]}"]


def test_admission_changes_or_rejects() -> None:
    """Each rule sees what those before it answered; a rejection ends it."""
    seen: list[v1.Request] = []

    def last(request: v1.Request) -> v1.Reject | None:
        seen.append(request)
        return v1.Reject("not today") if request.tenant == "nobody" else None

    def tenant(request: v1.Request) -> v1.Tenant:
        return v1.Tenant("team" if request.tenant == "clinic" else "nobody")

    rules = ActiveRules(
        [
            rule("A", admit=lambda _: v1.Objective("batch")),
            rule("B", admit=tenant),
            rule("C", admit=last),
        ],
        objectives=["batch"],
    )
    admitted = rules.admit(REQUEST)
    assert isinstance(admitted, Request)
    assert (admitted.objective, admitted.tenant, admitted.id) == ("batch", "client-team", "r")
    assert (seen[0].objective, seen[0].tenant) == ("batch", "team")
    assert (REQUEST.objective, REQUEST.tenant) == (None, "client-clinic")
    assert rules.admit(Request(id="s", timeout_s=1.0)) == "not today"


def _raise(*_: object) -> bool:
    raise ValueError("row row row")


@pytest.mark.parametrize(
    "broken",
    [
        rule("Bad", filter=_raise),
        rule("Bad", cost=_raise),
        rule("Bad", admit=_raise),
        rule("Bad", filter=lambda *_: None),
        rule("Bad", cost=lambda *_: "much"),
        rule("Bad", cost=lambda *_: 10**400),
        rule("Bad", admit=lambda _: v1.Objective("lost")),
    ],
)
def test_three_errors_switch_a_rule_off(
    broken: LoadedRule, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then each costs nobody anything; then it is not called, which one log line, a problem
    and the metrics say, none of them with what the request held. Others go on."""
    other = rule("Other", filter=lambda *_: False, cost=lambda *_: 1.0)
    rules = ActiveRules([broken, other])

    def ask() -> None:
        assert rules.allowed(REQUEST, [endpoint()]) == frozenset()
        assert rules.cost_s(REQUEST, endpoint()) == 1.0
        assert rules.admit(REQUEST) is REQUEST

    for _ in range(2):
        ask()
        assert not rules.problems() and rules.version == 0
    for _ in range(3):
        ask()
    assert rules.version == 1
    (problem,) = rules.problems()
    assert "the rule Bad is switched off" in problem and "coxswain config reload" in problem
    assert [record.getMessage() for record in caplog.records] == [problem]
    assert "row" not in problem
    assert rules.states() == {("Bad",): 0.0, ("Other",): 1.0}
    assert rules.faults()["Bad", "error"] == 3


def test_a_rule_is_slow_three_times_in_a_minute() -> None:
    """The budget is for one request at all endpoints. What it answered counts; a slow call that is
    older than a minute does not."""
    clock = Clock()
    rules = ActiveRules(
        [rule(filter=clock.take(0.0009, answer=False))], clock=clock, used=clock.used
    )
    three = [endpoint(number) for number in (1, 2, 3)]
    for _ in range(10):
        assert rules.allowed(REQUEST, three[:2]) == frozenset()
    assert rules.faults()["Mine", "slow"] == 0
    for _ in range(5):
        assert rules.allowed(REQUEST, three) == frozenset()
        clock.now += 30.5
    assert rules.faults()["Mine", "slow"] == 5 and rules.version == 0
    for _ in range(2):
        assert rules.allowed(REQUEST, three) == frozenset()
    assert rules.allowed(REQUEST, three) is None, "it is off"
    assert "2.7 ms, of 2 ms at most" in rules.problems()[0]


def test_errors_and_slow_calls_count_together() -> None:
    clock = Clock()
    rules = ActiveRules(
        [rule(cost=clock.take(0.003, 1.0), admit=_raise)], clock=clock, used=clock.used
    )
    rules.cost_s(REQUEST, endpoint())
    rules.admit(REQUEST)
    rules.cost_s(REQUEST, endpoint())
    assert rules.problems() and not rules.has_costs


def test_whatever_a_rule_raises_is_contained() -> None:
    """Also what ends a process or a task; a rule that is switched off while it is asked, too."""

    def errors() -> Iterator[BaseException]:
        yield from (SystemExit(1), GeneratorExit(), RecursionError())

    left = errors()

    def fail(*_: object) -> object:
        raise next(left)

    rules = ActiveRules([rule("A", fail), rule("B", lambda *_: True)])
    for _ in range(4):
        assert rules.allowed(REQUEST, [endpoint()]) is None
    assert rules.states()["A",] == 0.0


def test_time_that_the_system_took_is_no_fault_of_a_rule() -> None:
    """One slow call may be that; the next ones within a minute are looked at: a rule that waited,
    or worked itself, is slow."""
    clock, used = Clock(), Used(0.0, 0)
    rules = ActiveRules([rule(cost=clock.take(0.5, 1.0))], clock=clock, used=lambda: used)
    for _ in range(20):
        rules.cost_s(REQUEST, endpoint())
    assert rules.faults()["Mine", "slow"] == 1 and not rules.problems()
    waits = iter(range(100))
    rules = ActiveRules(
        [rule(cost=clock.take(0.5, 1.0))], clock=clock, used=lambda: Used(0.0, next(waits))
    )
    for _ in range(3):
        rules.cost_s(REQUEST, endpoint())
    assert rules.problems()


def test_a_real_rule_that_waits_is_switched_off() -> None:
    """By the clock and the counters of the system."""

    def wait(*_: object) -> float:
        time.sleep(0.003)
        return 1.0

    rules = ActiveRules([rule(cost=wait)])
    for _ in range(3):
        rules.cost_s(REQUEST, endpoint())
    assert rules.faults()["Mine", "slow"] == 3 and rules.problems()
