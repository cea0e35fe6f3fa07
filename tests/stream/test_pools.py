"""Claims about pools in exchanges: what is for none, takes no slot, or was begun elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.client_limits import ClientLimit
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.pool_section import PoolSettings
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import Exchange
from extproc.stream.model_list import OURS
from extproc.stream.request.permission import Forbidden, permitted
from extproc.stream.request.pool_choice import PoolChoice
from extproc.stream.request.reader import RequestReader
from extproc.stream.request.translate import NO_BODY
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import ExchangeHarness

NAMES = ("chat", "batch")
TEAM = {"x-team": "batch"}


class PooledHarness(ExchangeHarness):
    """An endpoint in each pool, and none is the default."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        pools = {
            "chat": PoolSettings.model_validate({"hosts": ["chat.test"]}),
            "batch": PoolSettings.model_validate({"header": {"name": "x-team", "value": "batch"}}),
        }
        envoy_settings = EnvoySettings(health=True)
        choice = PoolChoice(pools)
        self.options = replace(self.options, envoy=envoy_settings, pools=choice)
        dispatcher, now = self.fleet.dispatcher, self.fleet.now
        resolver = ResolverOptions(pools={name: ResolverOptions() for name in pools})
        dispatcher.renew(replace(dispatcher.options, resolver=resolver), now)
        specs = [
            EndpointSpec(address=address, pool=pool)
            for address, pool in zip(self.fleet.addresses, NAMES, strict=True)
        ]
        for source in ("test", "fleet"):
            if dispatcher.fleet.specs_of(source):
                dispatcher.set_members(source, specs, now)

    def ended(self, exchange: Exchange) -> Reason | None:
        return exchange.end(self.fleet.now).reason

    def explain(self, path: str = envoy.COMPLETION, **asked: Any) -> Explanation:
        request = DryRunRequest(
            **{"method": "POST", "path": path, "headers": {}, "body": b"{}", **asked}
        )
        return dry_run(self.fleet.dispatcher, self.options, request, self.fleet.now)


def test_what_is_for_no_pool_is_rejected() -> None:
    """Whatever it asks for, but for a preflight; the port says it before anything else."""
    harness = PooledHarness()
    for method, path in (
        ("POST", envoy.COMPLETION),
        ("POST", "/tokenize"),
        ("GET", "/v1/models"),
        ("GET", "/health"),
    ):
        exchange = harness.exchange()
        harness.feed(exchange, envoy.request_headers(method=method, path=path))
        assert harness.ended(exchange) is Reason.NO_POOL
        assert harness.explain(path, method=method).reason is Reason.NO_POOL
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers(method="OPTIONS"))
    assert harness.ended(exchange) is None
    by_port = Exchange(harness.fleet.dispatcher, harness.options, harness.fleet.now, pool="chat")
    harness.feed(by_port, envoy.request_headers(**TEAM))
    assert by_port.snapshot(harness.fleet.now).endpoint == harness.fleet.addresses[0]
    assert by_port.end(harness.fleet.now).pool == "chat"


def test_a_key_is_asked_for_first() -> None:
    """Nobody without a key reads which pools there are."""
    harness = PooledHarness()
    keys = KnownKeys({digest_of("sk"): "web"})
    harness.options = replace(harness.options, keys=keys)
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers())
    assert harness.ended(exchange) is Reason.INVALID_API_KEY
    assert harness.explain().reason is Reason.INVALID_API_KEY
    assert harness.explain(client="web").reason is Reason.NO_POOL


def test_what_takes_no_slot_stays_in_its_pool() -> None:
    """Where no server of its pool is ready, it is rejected, although another pool has one."""
    harness = PooledHarness()
    there = harness.fleet.addresses[1]
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers(path="/tokenize", **TEAM))
    assert exchange.snapshot(harness.fleet.now).endpoint == there
    exchange.end(harness.fleet.now)
    assert harness.explain("/tokenize", pool="batch").chosen == there
    assert harness.explain("/health", method="GET", pool="batch").resolved == {"answered_by": OURS}
    harness.fleet.dispatcher.connect_failed(there, harness.fleet.now)
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers(path="/tokenize", **TEAM))
    assert harness.ended(exchange) is Reason.NO_ENDPOINT


def test_a_conversation_is_one_of_its_pool() -> None:
    """Its id is unknown in any other."""
    harness = PooledHarness()
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers(**TEAM, **{"x-conversation-id": "c1"}))
    assert exchange.snapshot(harness.fleet.now).endpoint == harness.fleet.addresses[1]
    asked = {"method": "GET", "path": "/v1/stream?conv_id=c1"}
    other, same = harness.exchange(), harness.exchange()
    harness.feed(other, envoy.request_headers(**asked, **{":authority": "chat.test"}))
    assert harness.ended(other) is Reason.CONVERSATION_NOT_FOUND
    harness.feed(same, envoy.request_headers(**asked, **TEAM))
    assert same.snapshot(harness.fleet.now).endpoint == harness.fleet.addresses[1]


@pytest.mark.parametrize(("pool", "reason"), [("chat", None), ("night", Reason.NO_POOL)])
def test_an_explanation_may_name_the_pool(pool: str, reason: Reason | None) -> None:
    harness = PooledHarness()
    assert harness.explain(pool=pool).reason is reason
    assert ExchangeHarness(1).options.pools is None


def test_without_pools_there_is_none_to_name() -> None:
    harness = ExchangeHarness(1)
    asked = DryRunRequest(method="POST", path=envoy.COMPLETION, headers={}, pool="chat")
    found = dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)
    assert found.reason is Reason.NO_POOL


@pytest.mark.parametrize("has_pools", [True, False])
def test_the_port_of_a_pool_that_is_no_more_is_for_none(has_pools: bool) -> None:
    """A supervisor of fronts listens there until a restart."""
    harness = PooledHarness()
    options = harness.options if has_pools else replace(harness.options, pools=None)
    exchange = Exchange(harness.fleet.dispatcher, options, harness.fleet.now, "", "night")
    harness.feed(exchange, envoy.request_headers(**TEAM))
    assert harness.ended(exchange) is Reason.NO_POOL


def test_what_another_core_began_is_of_the_same_pool() -> None:
    """Its headers are read again."""
    harness = PooledHarness()
    reader = RequestReader(harness.fleet.dispatcher, harness.options)
    request = reader.resume(envoy.request_headers(**TEAM), None)
    assert (request.pool, reader.pool) == ("batch", "batch")


def test_a_key_may_use_objectives_of_a_pool() -> None:
    """Other pools have none of them: there the key may do nothing, whatever the default is."""
    harness = PooledHarness()
    slow = Objective(name="batch/slow", pool="batch")
    named = {"slow": slow, "batch/slow": slow}
    resolver = ResolverOptions(
        pools={
            "chat": ResolverOptions(),
            "batch": ResolverOptions(objectives=Objectives(by_name=named)),
        }
    )
    dispatcher = harness.fleet.dispatcher
    dispatcher.renew(replace(dispatcher.options, resolver=resolver), harness.fleet.now)
    limit = ClientLimit(objectives=("batch/slow",))

    def permits(pool: str, objective: str | None) -> str:
        request = Request(id="r", timeout_s=1.0, pool=pool, objective=objective)
        found = permitted(request, NO_BODY, limit, dispatcher.resolver.of_pool(pool))
        return found.reason.value if isinstance(found, Forbidden) else str(found.objective)

    assert permits("batch", "slow") == "slow"
    assert permits("batch", None) == "batch/slow"
    assert permits("chat", None) == "objective-not-allowed"
    assert permits("chat", "slow") == "objective-not-allowed"
