"""Claims about the operators' rules on the way of a request: admission, and what takes no slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.objective import Objective, Objectives
from extproc.core.rejection import NONE_BY_RULES, Reason
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.rules import v1
from extproc.rules.active_rules import ActiveRules
from extproc.rules.loading import LoadedRule
from extproc.stream.dry_run import dry_run
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import BODY, ExchangeHarness, ask


def ruled(*rules: LoadedRule, slots: tuple[int, ...] = (4,)) -> ExchangeHarness:
    harness = ExchangeHarness(*slots)
    dispatcher = harness.fleet.dispatcher
    objectives = Objectives(by_name={"batch": Objective(name="batch")})
    resolver = replace(dispatcher.options.resolver, objectives=objectives)
    dispatcher.renew(replace(dispatcher.options, resolver=resolver))
    dispatcher.set_rules(ActiveRules(rules, ["batch"]), harness.fleet.now)
    return harness


def explained(harness: ExchangeHarness, path: str, method: str = "POST", **h: str) -> Explanation:
    asked = DryRunRequest(method=method, path=path, headers=h, body=BODY)
    return dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)


def admit(request: v1.Request) -> Any:
    if request.fairness_id == "nobody":
        return v1.Reject("Ask the vision team for an account.")
    return v1.Objective("batch") if request.model == "tiny" else None


def test_a_rejected_request_hears_the_reason() -> None:
    """Before it takes a slot; explain says the same."""
    harness = ruled(LoadedRule("Door", None, None, admit))
    exchange = harness.exchange()
    header = {"x-gateway-inference-fairness-id": "nobody"}
    (_, reply) = harness.feed(exchange, ask(**header), envoy.body(BODY))
    assert envoy.rejection(reply) == (403, "rejected-by-rule")
    assert b"Ask the vision team for an account." in reply.immediate_response.body
    record = exchange.end(harness.fleet.now)
    assert record.reason is Reason.REJECTED_BY_RULE
    assert not list(harness.fleet.dispatcher.view.leases())
    found = explained(harness, envoy.COMPLETION, **header)
    assert found.reason is Reason.REJECTED_BY_RULE
    assert found.resolved["rule"] == "Ask the vision team for an account."


def test_an_objective_that_a_rule_gives_counts_everywhere() -> None:
    """In the decision, the record and the explanation; also for who takes the request over."""
    harness = ruled(LoadedRule("Door", None, None, admit))
    exchange = harness.exchange()
    harness.feed(exchange, ask(), envoy.body(BODY))
    assert harness.asked[0].objective == "batch"
    assert exchange.snapshot(harness.fleet.now).objective == "batch"
    assert explained(harness, envoy.COMPLETION).resolved["objective"] == "batch"
    held = exchange.held_lease()
    assert held is not None
    heir = harness.exchange()
    heir.resume(ask(), held._replace(model="tiny"), harness.fleet.now)
    records: list[ExchangeRecord] = [one.end(harness.fleet.now) for one in (exchange, heir)]
    assert [record.objective for record in records] == ["batch", "batch"]


def test_a_request_that_was_admitted_goes_on_elsewhere() -> None:
    """A rule that rejects it by now ends no response that has begun."""
    harness = ruled()
    exchange, heir = harness.exchange(), harness.exchange()
    harness.feed(exchange, ask(), envoy.body(BODY))
    held = exchange.held_lease()
    assert held is not None
    door = LoadedRule("Door", None, None, lambda _: v1.Reject("closed"))
    harness.fleet.dispatcher.set_rules(ActiveRules([door]), harness.fleet.now)
    heir.resume(ask(), held, harness.fleet.now)
    assert heir.lease is not None


@pytest.mark.parametrize(("path", "method"), [("/tokenize", "POST"), ("/props", "GET")])
def test_what_takes_no_slot_goes_where_rules_let_it(path: str, method: str) -> None:
    """A count of tokens holds the prompt, too: it reaches no server that the rules exclude, also
    not by a retry."""
    harness = ruled(LoadedRule("Pin", pin, None, None), slots=(1, 1, 1))
    header = {"x-gateway-inference-fairness-id": "pinned"}
    for _ in range(5):
        message = envoy.request_headers(path, method, **header)
        replies = harness.feed(harness.exchange(), message)
        assert envoy.destination(replies[-1]) == [str(harness.fleet.addresses[1])]
        assert "x-envoy-max-retries" in str(replies[-1])
        found = explained(harness, path, method, **header)
        assert found.chosen == harness.fleet.addresses[1]
    nowhere = LoadedRule("Nowhere", lambda *_: False, None, None)
    harness.fleet.dispatcher.set_rules(ActiveRules([nowhere]), harness.fleet.now)
    replies = harness.feed(harness.exchange(), envoy.request_headers(path, method))
    assert envoy.rejection(replies[-1]) == (503, "no-endpoint")
    assert NONE_BY_RULES.encode() in replies[-1].immediate_response.body


def pin(request: v1.Request, endpoint: v1.Endpoint) -> bool:
    return request.fairness_id != "pinned" or endpoint.address.endswith(":8001")
