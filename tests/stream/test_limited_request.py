"""Claims about extproc/stream/limited_request.py and how exchanges use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.exchange_record import Outcome
from extproc.core.rejection import Reason
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.limited_request import LimitedRequest
from extproc.stream.stage import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-free"): "free"})
WEB, FREE = {"authorization": "Bearer sk-web"}, {"authorization": "Bearer sk-free"}


def exchange_of(fleet: SmallFleet, limits: ClientLimits, headers: dict[str, str]) -> Exchange:
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(limits=limits, keys=KEYS), fleet.now)
    exchange.feed(envoy.request_headers(**headers), fleet.now)
    return exchange


def rejected(exchange: Exchange) -> tuple[int, str, dict[str, str]]:
    reply = exchange.take_reply()
    assert reply is not None
    immediate = reply.immediate_response
    headers = {
        one.header.key: one.header.raw_value.decode() for one in immediate.headers.set_headers
    }
    return immediate.status.code, json.loads(immediate.body)["error"]["type"], headers


def test_each_count_is_given_back_once() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=1)})
    request = LimitedRequest(limits, "web", "a")
    assert request.begin(0.0) is None
    assert request.queue_full(0.0) is None
    request.enqueue()
    assert LimitedRequest(limits, "web", "b").queue_full(0.0) is not None
    assert request.headers(0.0)["x-ratelimit-remaining-requests"] == "0"
    for _ in range(2):
        request.end()
    other = LimitedRequest(limits, "web", "b")
    assert other.begin(0.0) is None
    assert other.queue_full(0.0) is None


def test_a_rejected_request_gives_nothing_back() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    first, second = (LimitedRequest(limits, "web", name) for name in "ab")
    assert first.begin(0.0) is None
    assert second.begin(0.0) is not None
    second.end()
    assert LimitedRequest(limits, "web", "c").begin(0.0) is not None


def test_a_client_above_its_limit_is_rejected_as_openai_does() -> None:
    fleet = SmallFleet(4)
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    first = exchange_of(fleet, limits, WEB)
    assert first.stage is Stage.LEASED
    second = exchange_of(fleet, limits, WEB)
    status, kind, headers = rejected(second)
    assert (status, kind) == (429, "rate_limit_error")
    assert headers["x-ratelimit-limit-requests"] == "1"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert int(headers["retry-after"]) >= 1
    record = second.end(fleet.now)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.RATE_LIMITED)
    assert exchange_of(fleet, limits, FREE).stage is Stage.LEASED, "nobody's limit"
    first.end(fleet.now)
    assert exchange_of(fleet, limits, WEB).stage is Stage.LEASED


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_client_queues_no_more_than_its_limit(is_settled: bool) -> None:
    """Until one of its requests gets a slot or leaves; nothing of the rejected one is left."""
    fleet = SmallFleet(1)
    limits = ClientLimits({"web": ClientLimit(queued=1)})
    running = exchange_of(fleet, limits, FREE)
    queued = exchange_of(fleet, limits, WEB)
    assert queued.stage is Stage.QUEUED and queued.ticket is not None
    over = exchange_of(fleet, limits, WEB)
    assert rejected(over)[0] == 429
    assert over.ticket is None and len(fleet.dispatcher.queue) == 1
    over.end(fleet.now)
    assert rejected(exchange_of(fleet, limits, WEB))[0] == 429
    if is_settled:
        ticket = queued.ticket
        running.end(fleet.now)
        queued.settle(fleet.listener.settlements[ticket.id])
    else:
        queued.end(fleet.now)
    assert exchange_of(fleet, limits, WEB).stage is Stage.QUEUED


def test_a_request_that_may_not_queue_evicts_nobody() -> None:
    """In a full queue, for a critical request of a client that may queue none."""
    fleet = SmallFleet(1, queue_max_requests=1)
    limits = ClientLimits({"web": ClientLimit(queued=0)})
    exchange_of(fleet, limits, FREE)
    waiting = exchange_of(fleet, limits, FREE)
    assert waiting.stage is Stage.QUEUED
    over = exchange_of(fleet, limits, WEB | {"x_gateway_inference_objective": "critical"})
    assert rejected(over)[0] == 429
    assert waiting.ticket is not None and waiting.ticket.is_waiting
    assert not fleet.listener.settlements


def test_a_request_that_finds_a_slot_needs_no_place_in_the_queue() -> None:
    fleet = SmallFleet(1)
    limits = ClientLimits({"web": ClientLimit(queued=0)})
    assert exchange_of(fleet, limits, WEB).stage is Stage.LEASED


def test_whatever_else_rejects_it_is_said() -> None:
    """A queue of no places is not the client's fault; it counts until its stream ends."""
    fleet = SmallFleet(1, queue_max_requests=0)
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=5)})
    exchange_of(fleet, limits, FREE)
    full = exchange_of(fleet, limits, WEB)
    assert rejected(full)[2]["x-coxswain-reason"] == Reason.QUEUE_FULL.value
    full.end(fleet.now)
    assert list(limits.held()) == []


def test_responses_tell_what_the_client_has_left() -> None:
    fleet = SmallFleet(4)
    limits = ClientLimits({"web": ClientLimit(requests=3, tokens_per_minute=600)})
    exchange = exchange_of(fleet, limits, WEB)
    exchange.take_reply()
    limits.spent("web", 60, fleet.now)
    exchange.feed(envoy.response_headers(), fleet.now)
    reply = exchange.take_reply()
    assert reply is not None
    mutation = reply.response_headers.response.header_mutation
    found = {one.header.key: one.header.raw_value.decode() for one in mutation.set_headers}
    assert found["x-ratelimit-remaining-requests"] == "2"
    assert found["x-ratelimit-remaining-tokens"] == "540"
    assert found["x-ratelimit-reset-tokens"] == "6s"
    assert found["x-coxswain-attempts"] == "1"


def served(exchange: Exchange, fleet: SmallFleet) -> None:
    exchange.feed(envoy.response_headers(), fleet.now)


def finished_early(exchange: Exchange, fleet: SmallFleet) -> None:
    exchange.feed(envoy.response_headers(body_bytes=100), fleet.now)


def left(exchange: Exchange, fleet: SmallFleet) -> None:
    """Its client goes."""


def cancelled(exchange: Exchange, fleet: SmallFleet) -> None:
    exchange.cancel(fleet.now)


def lost(exchange: Exchange, fleet: SmallFleet) -> None:
    reset = "upstream_reset_before_response_started{connection_termination}"
    exchange.feed(envoy.response_headers("502", details=reset), fleet.now)
    exchange.break_off(is_servers_fault=True)


@pytest.mark.parametrize("ending", [served, finished_early, left, cancelled, lost])
def test_a_running_request_gives_back_what_it_took(
    ending: Callable[[Exchange, SmallFleet], None],
) -> None:
    fleet = SmallFleet(1)
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=1)})
    exchange = exchange_of(fleet, limits, WEB)
    assert list(limits.held()) == [("web", exchange.id)]
    ending(exchange, fleet)
    exchange.end(fleet.now)
    assert list(limits.held()) == []


@pytest.mark.parametrize("has_report", [True, False])
def test_a_request_counts_until_its_server_is_free(has_report: bool) -> None:
    """A client that asks and leaves, in whatever way, has no more slots than its limit."""
    fleet = SmallFleet(2)
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    first = exchange_of(fleet, limits, WEB)
    fleet.now += 1.0
    first.feed(envoy.response_headers(content_type="text/event-stream"), fleet.now)
    if has_report:
        first.break_off()
    first.end(fleet.now)
    standing = limits.standing("web", fleet.now)
    assert standing is not None and standing.remaining_requests == 0
    assert rejected(exchange_of(fleet, limits, WEB))[0] == 429
    fleet.now += 1.0
    fleet.scrape(fleet.addresses[0], busy=0)
    assert exchange_of(fleet, limits, WEB).stage is Stage.LEASED


def timed_out(exchange: Exchange, fleet: SmallFleet) -> None:
    fleet.now += 61.0
    fleet.dispatcher.advance(fleet.now)


@pytest.mark.parametrize("ending", [left, cancelled, timed_out])
def test_a_queued_request_gives_back_what_it_took(
    ending: Callable[[Exchange, SmallFleet], None],
) -> None:
    """Its place in the queue at once, the rest at its end."""
    fleet = SmallFleet(1)
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=1)})
    exchange_of(fleet, limits, FREE)
    exchange = exchange_of(fleet, limits, WEB)
    ticket = exchange.ticket
    assert ticket is not None and limits.queue_full("web", fleet.now) is not None
    ending(exchange, fleet)
    settlement = fleet.listener.settlements.get(ticket.id)
    if settlement is not None:
        exchange.settle(settlement)
        assert limits.queue_full("web", fleet.now) is None
        assert list(limits.held()) == [("web", exchange.id)]
    exchange.end(fleet.now)
    assert list(limits.held()) == []


def test_what_another_process_began_counts_here_and_is_not_rejected() -> None:
    """A request with a slot and one in the queue, whatever the limit is by now."""
    fleet = SmallFleet(1)
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=0)})
    running, waiting = (
        Exchange(fleet.dispatcher, ExchangeOptions(limits=limits, keys=KEYS), fleet.now)
        for _ in range(2)
    )
    held = HeldLease(fleet.addresses[0], 1, 1, "", fleet.now, 0.0, ())
    running.resume(envoy.request_headers(**WEB), held, fleet.now)
    waiting.place = Place(1, fleet.now)
    waiting.feed(envoy.request_headers(**WEB), fleet.now)
    assert (running.stage, waiting.stage) == (Stage.LEASED, Stage.QUEUED)
    assert set(limits.held()) == {("web", running.id), ("web", waiting.id)}
    assert rejected(exchange_of(fleet, limits, WEB))[0] == 429
    for each in (waiting, running):
        each.end(fleet.now)
    assert list(limits.held()) == []


ADA = {"x_session_id": "ada"}


def limited_fleet(*slots: int, **limits: ClientLimit) -> SmallFleet:
    """Its core has the limits of sessions and flows."""
    fleet = SmallFleet(*slots)
    options = replace(fleet.dispatcher.options, client_limits=limits)
    fleet.dispatcher.renew(options, fleet.now)
    return fleet


def test_a_request_above_the_limit_of_its_session_is_queued() -> None:
    """It counts as queued for its client, too, and one that the client may not queue is rejected
    for that reason."""
    limit = ClientLimit(per_session=1, queued=1)
    fleet = limited_fleet(8, web=limit)
    limits = ClientLimits({"web": limit})
    running, held = (exchange_of(fleet, limits, WEB | ADA) for _ in range(2))
    assert (running.stage, held.stage) == (Stage.LEASED, Stage.QUEUED)
    assert limits.running("web") == (2, 1)
    over = exchange_of(fleet, limits, WEB | ADA)
    reply = over.take_reply()
    assert reply is not None and b"may queue 1 request" in reply.immediate_response.body
    over.end(fleet.now)
    assert exchange_of(fleet, limits, WEB).stage is Stage.LEASED
    running.end(fleet.now)
    ticket = held.ticket
    assert ticket is not None
    fleet.scrape(fleet.addresses[0], busy=1)
    fleet.pass_time(11.0)
    held.settle(fleet.listener.settlements[ticket.id])
    assert held.stage is Stage.LEASED and limits.running("web")[1] == 0
    held.end(fleet.now)


def test_what_may_not_wait_for_its_session_is_rejected_as_above_other_limits() -> None:
    fleet = limited_fleet(8, **{"*": ClientLimit(per_flow=1)})
    team = {"x_gateway_inference_fairness_id": "team"}
    running = exchange_of(fleet, ClientLimits({}), WEB | team)
    at_once = WEB | team | {"x_coxswain_queue_timeout_ms": "0"}
    reply = exchange_of(fleet, ClientLimits({}), at_once).take_reply()
    assert reply is not None
    assert b"This fairness id may have 1 request at once" in reply.immediate_response.body
    status, kind, headers = rejected(exchange_of(fleet, ClientLimits({}), at_once))
    assert (status, kind) == (429, "rate_limit_error") and int(headers["retry-after"]) >= 1
    assert headers["x-coxswain-reason"] == Reason.RATE_LIMITED.value
    running.end(fleet.now)


def test_what_another_process_began_counts_in_its_session() -> None:
    """Also without keys, of each tenant for itself."""
    fleet = limited_fleet(8, **{"*": ClientLimit(per_session=1)})

    adopted, same, other = (
        Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now) for _ in range(3)
    )
    held = HeldLease(fleet.addresses[0], 1, 1, "", fleet.now, 0.0, ())
    adopted.resume(envoy.request_headers(authorization="Bearer 1", **ADA), held, fleet.now)
    same.feed(envoy.request_headers(authorization="Bearer 1", **ADA), fleet.now)
    other.feed(envoy.request_headers(authorization="Bearer 2", **ADA), fleet.now)
    assert (same.stage, other.stage) == (Stage.QUEUED, Stage.LEASED)
    for each in (same, adopted, other):
        each.end(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
