"""Claims about extproc/stream/dry_run.py: the explanation of a request that is not sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.rejection import Reason
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import Exchange
from extproc.stream.model_list import OURS
from extproc.stream.request.names import NOT_WHOLE
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import (
    BODY,
    ExchangeHarness,
)


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ({"content-type": "multipart/form-data"}, b"--x\r\n", Reason.BAD_REQUEST),
        ({}, b"{}", None),
        ({"content-type": "application/octet-stream"}, b"{}", None),
        ({}, b"", Reason.BAD_REQUEST),
    ],
)
def test_who_asks_what_would_be_hears_what_is(
    headers: dict[str, str], body: bytes, reason: Reason | None
) -> None:
    """A name of ours cannot be told to a router in what is not a JSON object: neither way."""
    harness = ExchangeHarness(4, splits={"chat": {"tiny": 1.0}})
    harness.route()
    named = {**headers, "x-gateway-model-name": "chat"}
    exchange = harness.exchange()
    harness.feed(exchange, envoy.with_body(envoy.request_headers(**named)), envoy.body(body))
    assert exchange.end(harness.fleet.now).reason is reason
    asked = DryRunRequest(method="POST", path=envoy.COMPLETION, headers=named, body=body)
    assert (
        dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now).reason
        is reason
    )


def explained(
    harness: ExchangeHarness,
    path: str = envoy.COMPLETION,
    body: bytes = b"",
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    client: str = "",
) -> Explanation:
    asked = DryRunRequest(method=method, path=path, headers=headers or {}, body=body, client=client)
    return dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)


def test_a_dry_run_changes_nothing() -> None:
    """The slot that it names is still free, and nothing is queued without one."""
    harness = ExchangeHarness(1)
    for _ in range(3):
        assert explained(harness).chosen == harness.fleet.addresses[0]
    harness.fleet.pick()
    for _ in range(3):
        assert explained(harness).position == 1
    assert not harness.fleet.dispatcher.queue


def test_who_answers_for_the_health_of_the_fleet() -> None:
    """A server, unless the settings say that the picker does."""
    harness = ExchangeHarness(1)
    assert not explained(harness, "/health", method="GET").resolved
    harness.options = replace(harness.options, envoy=EnvoySettings(health=True))
    assert explained(harness, "/health", method="GET").resolved == {"answered_by": OURS}


def test_the_body_counts_as_in_a_real_request() -> None:
    harness = ExchangeHarness(4)
    found = explained(harness, body=BODY).resolved
    assert (found["model"], found["weight_slots"]) == ("tiny", "2")


def test_names_of_headers_are_read_in_any_spelling() -> None:
    harness = ExchangeHarness(4)
    found = explained(harness, headers={"X-Gateway-Model-Name": "large"}).resolved
    assert found["model"] == "large"


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_body_that_cannot_be_read_is_reported(is_strict: bool) -> None:
    """Strictly it is rejected; otherwise it is routed, and the person who asks hears of it."""
    harness = ExchangeHarness(4, is_strict=is_strict)
    found = explained(harness, body=b'{"model":')
    assert (found.reason is Reason.BAD_REQUEST) is is_strict
    assert found.resolved["problem" if is_strict else "body"]


def test_a_request_with_an_impossible_header_is_rejected_with_its_problem() -> None:
    harness = ExchangeHarness(4)
    found = explained(harness, headers={"x-coxswain-queue-timeout-ms": "soon"})
    assert found.reason is Reason.BAD_REQUEST and found.resolved["problem"]


def test_a_closed_path_is_blocked() -> None:
    found = explained(ExchangeHarness(4), "/slots", method="GET")
    assert (found.reason, found.takes_slot) == (Reason.BLOCKED_PATH, False)


def test_a_path_that_takes_no_slot_passes() -> None:
    harness = ExchangeHarness(1)
    harness.fleet.pick()
    found = explained(harness, "/tokenize", b"{}")
    assert not found.takes_slot and found.chosen == harness.fleet.addresses[0]


def test_the_list_of_models_is_answered_by_the_picker_once_it_knows_one() -> None:
    """Until then it passes to a server."""
    harness = ExchangeHarness(4)
    found = explained(harness, "/v1/models", method="GET")
    assert not found.takes_slot and found.chosen is not None
    harness.serve()
    found = explained(harness, "/v1/models", method="GET")
    assert not found.takes_slot and found.chosen is None
    assert found.resolved == {"answered_by": OURS}


def test_names_that_cannot_be_served_are_explained() -> None:
    """As the client would read it."""
    harness = ExchangeHarness(4)
    harness.serve("poet")
    found = explained(harness, body=b'["row"]', headers={"x-lora-adapter": "poet"})
    assert found.reason is Reason.BAD_REQUEST and found.resolved["problem"] == NOT_WHOLE


KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-batch"): "batch"})
WEB = {"authorization": "Bearer sk-web"}


def with_keys(*slots: int, **limits: ClientLimit) -> ExchangeHarness:
    harness = ExchangeHarness(*slots)
    harness.options = replace(harness.options, keys=KEYS, limits=ClientLimits(limits))
    dispatcher = harness.fleet.dispatcher
    dispatcher.renew(replace(dispatcher.options, client_limits=limits))
    return harness


def queue(harness: ExchangeHarness, key: str, **headers: str) -> Exchange:
    """A request of the client with this key."""
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers(authorization=f"Bearer {key}", **headers))
    return exchange


@pytest.mark.parametrize(("headers", "client"), [(WEB, ""), ({}, "web")])
def test_whose_request_it_is_counts_as_in_a_real_one(headers: dict[str, str], client: str) -> None:
    """By its key, or by its name: its turn comes after those that its client has queued, and
    where a real request comes. Another client's comes before them."""
    harness = with_keys(1)
    harness.fleet.pick()
    others = [queue(harness, "sk-web") for _ in range(3)]
    found = explained(harness, headers=headers, client=client)
    assert found.resolved["client"] == "web"
    late = queue(harness, "sk-web")
    assert late.ticket is not None
    place = harness.fleet.dispatcher.view.position_of(late.ticket, harness.fleet.now).position
    assert found.position == place == 4
    assert explained(harness, client="batch").position == 2
    for exchange in (*others, late):
        exchange.end(harness.fleet.now)


def test_a_clients_user_shares_its_turns() -> None:
    """The fairness id is a flow within its client's."""
    harness = with_keys(1)
    harness.fleet.pick()
    user = {"x-gateway-inference-fairness-id": "ada"}
    queued = [queue(harness, "sk-web", **user) for _ in range(3)]
    same = explained(harness, headers={**WEB, **user})
    other = explained(harness, headers={**WEB, "x-gateway-inference-fairness-id": "bob"})
    assert same.resolved["fairness_id"] == "ada" and same.position == 4
    assert other.position < same.position
    for exchange in queued:
        exchange.end(harness.fleet.now)


def test_a_limit_of_a_session_counts_and_is_not_used_up() -> None:
    """A request above it would be held back, or rejected if it may not wait."""
    harness = with_keys(4, web=ClientLimit(per_session=1))
    session = {"x-session-id": "crew"}
    running = queue(harness, "sk-web", **session)
    for _ in range(2):
        found = explained(harness, headers=WEB | session)
        assert (found.reason, found.position, found.expected_s) == (None, 1, None)
        assert "of this session run" in found.note and "crew" in found.resolved["limits"]
        at_once = {"x-coxswain-queue-timeout-ms": "0"}
        assert explained(harness, headers=WEB | session | at_once).reason is Reason.RATE_LIMITED
        assert explained(harness, headers=WEB | {"x-session-id": "other"}).chosen is not None
    running.end(harness.fleet.now)


def test_a_limit_of_the_client_counts_and_is_not_used_up() -> None:
    """Too many requests, or too many queued: rejected as the real one is."""
    harness = with_keys(1, web=ClientLimit(queued=1), batch=ClientLimit(requests=1))
    assert explained(harness, headers=WEB).chosen is not None, "its queue is not needed"
    running = queue(harness, "sk-batch")
    for _ in range(2):
        assert explained(harness, headers=WEB).position == 1
        assert explained(harness, client="batch").reason is Reason.RATE_LIMITED
    queued = queue(harness, "sk-web")
    found = explained(harness, headers=WEB)
    assert (found.reason, found.position) == (Reason.RATE_LIMITED, 0) and found.resolved["limit"]
    assert queue(harness, "sk-web").end(harness.fleet.now).reason is Reason.RATE_LIMITED
    for exchange in (running, queued):
        exchange.end(harness.fleet.now)


@pytest.mark.parametrize(
    ("headers", "client"),
    [({}, ""), ({"authorization": "Bearer sk-wrong"}, ""), ({}, "nobody"), (WEB, "batcg")],
)
def test_without_a_clients_key_it_is_rejected_as_a_real_one(
    headers: dict[str, str], client: str
) -> None:
    """And what to do about it is said."""
    found = explained(with_keys(1), headers=headers, client=client)
    assert found.reason is Reason.INVALID_API_KEY and found.resolved["problem"]


def test_a_poison_request_is_rejected() -> None:
    """As the real one is: two servers died while they worked on it."""
    harness = ExchangeHarness(1, 1, 1)
    exchange = harness.exchange()
    harness.feed(exchange, envoy.with_body(envoy.request_headers()), envoy.body(BODY))
    exchange.end(harness.fleet.now)
    fingerprint = harness.asked[0].fingerprint
    assert explained(harness, body=BODY).chosen is not None
    for address in harness.fleet.addresses[:2]:
        harness.fleet.dispatcher.state.poison.lost_connection(
            fingerprint, address, harness.fleet.now
        )
    assert explained(harness, body=BODY).reason is Reason.POISON_REQUEST


def test_without_keys_no_request_is_a_clients() -> None:
    """It would go where any other goes, and the name changes nothing."""
    harness = ExchangeHarness(1)
    found = explained(harness, client="ann")
    assert found.chosen == harness.fleet.addresses[0]
    assert "not checked" in found.resolved["client"]
