"""Claims about extproc/stream/exchange.py, message by message, with the real dispatcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.exchange_registry import ExchangeState
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import Health
from extproc.core.prediction.latency import DEFAULT_ESTIMATE
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import UNKNOWN_PROMPT_TOKENS
from extproc.core.slots.lease import LeaseState
from extproc.pb import external_processor_pb2 as pb
from extproc.settings import QueueSettings
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.envoy import codec
from extproc.stream.exchange import (
    Exchange,
    ExchangeError,
    ExchangeOptions,
    ProtocolError,
    Stage,
)
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

STREAM = "text/event-stream"
LLAMACPP = Path(__file__).parents[1] / "data" / "llamacpp"


class ExchangeHarness:
    """A small fleet, and exchanges whose tickets are settled as the waiting room does it."""

    def __init__(
        self, *slots: int, queue_max_requests: int = 100, queue_timeout_s: float = 60.0
    ) -> None:
        self.fleet = SmallFleet(*slots, queue_max_requests=queue_max_requests)
        self.options = ExchangeOptions(queue=QueueSettings(timeout_s=queue_timeout_s))
        self._waiting: dict[int, Exchange] = {}
        self.fleet.listener.on_settled = lambda ticket, settlement: self._waiting.pop(
            ticket.id
        ).settle(settlement)

    def exchange(self) -> Exchange:
        return Exchange(self.fleet.dispatcher, self.options, self.fleet.now)

    def feed(self, exchange: Exchange, message: pb.ProcessingRequest) -> None:
        exchange.feed(message, self.fleet.now)
        if exchange.ticket is not None:
            self._waiting[exchange.ticket.id] = exchange

    def ask(
        self, exchange: Exchange, message: pb.ProcessingRequest
    ) -> pb.ProcessingResponse | None:
        """One message and what comes back."""
        self.feed(exchange, message)
        return exchange.take_reply()

    def picked(self) -> Exchange:
        """An exchange that was sent to a server."""
        exchange = self.exchange()
        assert envoy.destination(self.ask(exchange, envoy.request_headers()))
        return exchange

    def waiting(self, **headers: str) -> tuple[Exchange, Ticket]:
        """An exchange that is in the queue."""
        exchange = self.exchange()
        assert self.ask(exchange, envoy.request_headers(**headers)) is None
        assert exchange.ticket is not None
        return exchange, exchange.ticket

    def end(self, exchange: Exchange) -> ExchangeRecord:
        return exchange.end(self.fleet.now)

    @property
    def leased(self) -> int:
        return sum(self.fleet.account(a).leased_slots for a in self.fleet.addresses)

    @property
    def draining(self) -> int:
        leases = [x for a in self.fleet.addresses for x in self.fleet.account(a).leases.values()]
        return sum(lease.state is LeaseState.DRAINING for lease in leases)


# The usual way


def test_a_request_from_end_to_end() -> None:
    """Picked, answered, ended: the lease lives exactly as long as the exchange."""
    harness = ExchangeHarness(1, 1, 1)
    exchange = harness.exchange()
    sent_to = envoy.destination(harness.ask(exchange, envoy.request_headers(x_request_id="abc")))
    assert len(sent_to) == 3 and harness.leased == 1
    harness.fleet.now += 0.25
    reply = harness.ask(exchange, envoy.response_headers(served=sent_to[0], content_type=STREAM))
    assert reply is not None
    assert envoy.set_headers(reply.response_headers.response.header_mutation) == {
        "x-coxswain-endpoint": sent_to[0],
        "x-coxswain-queue-ms": "0",
        "x-coxswain-attempts": "1",
        "access-control-expose-headers": "*",
    }
    harness.fleet.now += 1.0
    assert harness.ask(exchange, envoy.part("response_trailers")) is not None
    record = harness.end(exchange)
    assert harness.leased == 0
    assert str(record.endpoint) == sent_to[0]
    assert (record.outcome, record.status, record.attempts) == (Outcome.SERVED, 200, 1)
    assert (record.request_id, record.exchange_id) == ("abc", exchange.id)
    assert (record.duration_s, record.waited_s) == (1.25, 0.0)
    # Nothing is known of the server: its headers may come sooner than its first tokens.
    assert record.first_token_s == pytest.approx(
        DEFAULT_ESTIMATE.first_token_s(UNKNOWN_PROMPT_TOKENS)
    )
    assert (record.began_at, record.path) == (100.0, envoy.COMPLETION)


def test_the_time_of_a_decision_is_reported() -> None:
    """All of its parts together, as the shell measured them."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    before = exchange.is_undecided
    exchange.decided(0.25)
    harness.ask(exchange, envoy.request_headers())
    exchange.decided(0.5)
    assert (before, exchange.is_undecided) == (True, False)
    assert harness.end(exchange).pick_s == 0.75


@pytest.mark.parametrize(
    ("of_envoy", "of_client", "told"),
    [("e", "c", "e"), ("", "c", "c"), ("e", "", "e"), ("", "", "")],
)
def test_whose_trace_it_joins(of_envoy: str, of_client: str, told: str) -> None:
    """Envoy's own span where it traces, else the caller's."""
    harness = ExchangeHarness(1)
    exchange = Exchange(harness.fleet.dispatcher, harness.options, harness.fleet.now, of_envoy)
    harness.ask(exchange, envoy.request_headers(traceparent=of_client))
    assert harness.end(exchange).trace_parent == told


def test_headers_can_be_switched_off() -> None:
    """Then the answer is what the server sent."""
    harness = ExchangeHarness(1)
    harness.options = replace(harness.options, adds_response_headers=False)
    reply = harness.ask(harness.picked(), envoy.response_headers())
    assert reply is not None and reply.WhichOneof("response") == "response_headers"
    assert envoy.set_headers(reply.response_headers.response.header_mutation) == {}


def test_each_exchange_has_an_id_of_its_own() -> None:
    """Whatever the client sent."""
    harness = ExchangeHarness()
    one, other = harness.exchange(), harness.exchange()
    for exchange in (one, other):
        harness.ask(exchange, envoy.request_headers(x_request_id="mine"))
    assert one.id != other.id and "mine" not in (one.id, other.id)


def test_a_request_that_takes_no_slot() -> None:
    """Sent to any endpoint, full or not; never queued, never leased."""
    harness = ExchangeHarness(1)
    harness.picked()
    exchange = harness.exchange()
    assert envoy.destination(harness.ask(exchange, envoy.request_headers("/health", "GET")))
    assert (exchange.stage, harness.leased) == (Stage.PASSING, 1)
    harness.ask(exchange, envoy.response_headers())
    record = harness.end(exchange)
    assert (record.outcome, record.endpoint) == (Outcome.PASSED, harness.fleet.addresses[0])
    assert harness.leased == 1


def test_passing_without_any_endpoint() -> None:
    """Our Envoy's own policy decides: nothing is rejected that needs no slot. A gateway must be
    told somebody, or 503."""
    harness = ExchangeHarness()
    message = envoy.request_headers("/tokenize")
    assert envoy.destination(harness.ask(harness.exchange(), message)) == []
    message.protocol_config.request_body_mode = codec.FULL_DUPLEX  # type: ignore[assignment]
    assert envoy.rejection(harness.ask(harness.exchange(), message)) == (503, "no-endpoint")


# Waiting


def test_a_request_that_waits() -> None:
    """Silent until its settlement, then sent on; the wait is told in a header."""
    harness = ExchangeHarness(1)
    first = harness.picked()
    second, ticket = harness.waiting()
    harness.fleet.now += 2.5
    harness.end(first)  # nothing tells that its server is done
    assert ticket.is_waiting
    harness.fleet.now += 0.5
    harness.fleet.scrape(harness.fleet.addresses[0], busy=0)
    assert (second.ticket, second.stage) == (None, Stage.LEASED)
    assert envoy.destination(second.take_reply()) == [str(harness.fleet.addresses[0])]
    reply = harness.ask(second, envoy.response_headers(served=str(harness.fleet.addresses[0])))
    assert reply is not None
    headers = envoy.set_headers(reply.response_headers.response.header_mutation)
    assert headers["x-coxswain-queue-ms"] == "3000"
    assert harness.end(second).waited_s == 3.0


@pytest.mark.parametrize(
    ("asked", "granted"), [(None, 60.0), ("1500", 1.5), ("60000", 60.0), ("999999999", 60.0)]
)
def test_patience_is_limited(asked: str | None, granted: float) -> None:
    """A client may ask for less than the operator's limit, not for more."""
    harness = ExchangeHarness(0, queue_timeout_s=60.0)
    headers = {} if asked is None else {"x_coxswain_queue_timeout_ms": asked}
    _, ticket = harness.waiting(**headers)
    assert ticket.request.timeout_s == granted


def test_a_patience_of_zero() -> None:
    """Served at once or refused at once, by the operator's word or the client's."""
    for harness, headers in (
        (ExchangeHarness(1, queue_timeout_s=0.0), {}),
        (
            ExchangeHarness(1, queue_timeout_s=60.0),
            {"x_coxswain_queue_timeout_ms": "0"},
        ),
    ):
        harness.picked()
        reply = harness.ask(harness.exchange(), envoy.request_headers(**headers))
        assert envoy.rejection(reply) == (504, "queue-timeout")


def test_a_deadline() -> None:
    """504 at its time, and its slot goes to nobody."""
    harness = ExchangeHarness(1, queue_timeout_s=5.0)
    first = harness.picked()
    second, _ = harness.waiting()
    harness.fleet.pass_time(5.0)
    assert envoy.rejection(second.take_reply()) == (504, "queue-timeout")
    record = harness.end(second)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.QUEUE_TIMEOUT)
    assert record.status == 504, "logs and spans show what the client got"
    assert (record.waited_s, record.endpoint) == (5.0, None)
    harness.ask(first, envoy.response_headers())
    harness.end(first)
    assert harness.leased == 0


def test_a_full_line() -> None:
    """429, and nothing is held."""
    harness = ExchangeHarness(1, queue_max_requests=0)
    harness.picked()
    exchange = harness.exchange()
    assert envoy.rejection(harness.ask(exchange, envoy.request_headers())) == (429, "queue-full")
    assert harness.end(exchange).reason is Reason.QUEUE_FULL


def test_shutting_down() -> None:
    """Who waits and who comes is rejected."""
    harness = ExchangeHarness(1)
    harness.picked()
    waiting, _ = harness.waiting()
    harness.fleet.dispatcher.close(harness.fleet.now)
    arrival = harness.exchange()
    harness.feed(arrival, envoy.request_headers())
    for exchange in (waiting, arrival):
        assert envoy.rejection(exchange.take_reply()) == (503, "shutting-down")


def test_a_client_that_leaves_the_queue() -> None:
    """Gone from it in the same call; it never gets a slot."""
    harness = ExchangeHarness(1)
    first = harness.picked()
    second, _ = harness.waiting()
    harness.fleet.now += 2.0
    record = harness.end(second)
    assert (record.outcome, record.waited_s) == (Outcome.WITHDRAWN, 2.0)
    assert len(harness.fleet.dispatcher.queue) == 0
    harness.ask(first, envoy.response_headers())
    harness.end(first)
    assert harness.leased == 0


def test_a_client_that_leaves_as_its_slot_comes() -> None:
    """The destination was never sent: the slot goes to the next at once, without draining."""
    harness = ExchangeHarness(1)
    first = harness.picked()
    second, _ = harness.waiting()
    third, _ = harness.waiting()
    harness.ask(first, envoy.response_headers())
    harness.end(first)
    assert second.stage is Stage.LEASED
    assert harness.end(second).outcome is Outcome.WITHDRAWN
    assert third.stage is Stage.LEASED
    assert (harness.leased, harness.draining) == (1, 0)


# Who served


@pytest.mark.parametrize(
    ("response", "is_free"),
    [
        (envoy.response_headers(body_bytes=600), True),
        (envoy.response_headers(body_bytes=None), False),  # its length is unknown, so more may come
        (envoy.response_headers(body_bytes=1_000_000), False),  # it is still on its way
        (envoy.response_headers(content_type=STREAM, body_bytes=600), False),
        (envoy.response_headers("500", body_bytes=600), False),
        (envoy.response_headers("503", body_bytes=9, details="no_healthy_upstream"), False),
    ],
)
def test_the_headers_of_a_short_response_free_the_slot(
    response: pb.ProcessingRequest, is_free: bool
) -> None:
    """llama-server sends them when it has finished; so the next request need not wait for the
    response to reach its client."""
    harness = ExchangeHarness(1)
    first = harness.picked()
    second, _ = harness.waiting()
    harness.fleet.now += 1.0
    harness.ask(first, response)
    assert (second.stage is Stage.LEASED) is is_free
    harness.fleet.now += 1.0
    if response.response_headers.headers.headers[0].raw_value != b"503":
        first.complete()
    told = harness.end(first)
    assert (told.endpoint, told.duration_s) == (harness.fleet.addresses[0], 2.0)
    assert second.stage is Stage.LEASED or told.status == 503
    harness.end(second)


def test_a_short_response_that_breaks_off_counts_against_its_server() -> None:
    """Although its slot was free before; and a success counts only when it has passed."""
    harness = ExchangeHarness(4, 4)
    bad = harness.fleet.addresses[0]
    for _ in range(3):
        assert not harness.fleet.endpoint(bad).is_ejected
        exchange = harness.exchange()
        harness.ask(exchange, envoy.request_headers())
        harness.fleet.now += 0.1
        harness.ask(exchange, envoy.response_headers(served=str(bad), body_bytes=600))
        exchange.break_off(is_servers_fault=True)
        ended = harness.end(exchange)
        assert ended.endpoint == bad and ended.is_servers_fault
    assert harness.fleet.endpoint(bad).is_ejected


def test_a_server_may_leave_before_its_last_response_has_passed() -> None:
    harness = ExchangeHarness(1, 1)
    exchange = harness.picked()
    harness.ask(exchange, envoy.response_headers(body_bytes=600))
    harness.fleet.dispatcher.set_members("test", [], harness.fleet.now)
    assert harness.end(exchange).outcome is Outcome.SERVED


def test_the_lease_follows_a_fallback() -> None:
    """The first could not be reached: it is down, and the slot that is used is the second's."""
    harness = ExchangeHarness(1, 1, 1)
    exchange = harness.exchange()
    sent_to = envoy.destination(harness.ask(exchange, envoy.request_headers()))
    second = sent_to[1]
    harness.ask(exchange, envoy.response_headers(served=second, attempts=2))
    by_name = {str(address): address for address in harness.fleet.addresses}
    health = [harness.fleet.endpoint(by_name[name]).health for name in sent_to]
    assert health == [Health.DOWN, Health.READY, Health.READY]
    assert harness.fleet.account(by_name[second]).leased_slots == 1
    assert str(harness.end(exchange).endpoint) == second
    assert harness.leased == 0


def test_who_served_at_last_is_not_down() -> None:
    """A second try at the same server succeeded."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.ask(
        exchange, envoy.response_headers(served=str(harness.fleet.addresses[0]), attempts=2)
    )
    assert harness.fleet.endpoint(harness.fleet.addresses[0]).health is Health.READY


def test_a_server_that_nobody_picked() -> None:
    """The policy below found another, whom the fleet does not know: the lease stays."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.ask(exchange, envoy.response_headers(served="10.9.9.9:1", attempts=1))
    assert harness.leased == 1
    assert harness.end(exchange).endpoint == harness.fleet.addresses[0]


def test_a_try_that_left_the_list_blames_only_those_before_it() -> None:
    """The first of the list failed, and the policy below sent the second try elsewhere."""
    harness = ExchangeHarness(1, 1)
    exchange = harness.exchange()
    first, _ = envoy.destination(harness.ask(exchange, envoy.request_headers()))
    harness.ask(exchange, envoy.response_headers(served="10.9.9.9:1", attempts=2))
    down = [a for a in harness.fleet.addresses if harness.fleet.endpoint(a).health is Health.DOWN]
    assert [str(address) for address in down] == [first]


def test_a_fallback_of_a_passing_request_reports_too() -> None:
    """What could not be reached is down, whoever found out."""
    harness = ExchangeHarness(1, 1)
    exchange = harness.exchange()
    first, second = envoy.destination(harness.ask(exchange, envoy.request_headers("/props", "GET")))
    harness.ask(exchange, envoy.response_headers(served=second, attempts=2))
    down = [a for a in harness.fleet.addresses if harness.fleet.endpoint(a).health is Health.DOWN]
    assert [str(address) for address in down] == [first]
    assert harness.leased == 0


def test_no_server_could_be_reached() -> None:
    """Envoy's 503: all that were tried are down, and the slot is free, for nothing ran."""
    harness = ExchangeHarness(1, 1, 1)
    exchange = harness.exchange()
    tried = envoy.destination(harness.ask(exchange, envoy.request_headers()))[:2]
    details = "upstream_reset_before_response_started{remote_connection_failure|refused}"
    harness.ask(exchange, envoy.response_headers("503", details=details, attempts=2))
    down = [a for a in harness.fleet.addresses if harness.fleet.endpoint(a).health is Health.DOWN]
    assert sorted(map(str, down)) == sorted(tried)
    record = harness.end(exchange)
    assert (record.outcome, record.status, record.first_token_s) == (Outcome.BROKEN, 503, None)
    assert harness.leased == 0


# How it ended


@pytest.mark.parametrize(
    ("content_type", "details", "report", "verdict", "drains"),
    [
        ("application/json", "via_upstream", "", Outcome.SERVED, False),
        ("application/json", "via_upstream", "cut", Outcome.SERVED, False),
        (STREAM, "via_upstream", "complete", Outcome.SERVED, False),
        (STREAM, "via_upstream", "complete, cut", Outcome.BROKEN, False),
        (STREAM, "via_upstream", "", Outcome.SERVED, True),
        (STREAM, "via_upstream", "cut", Outcome.BROKEN, True),
        ("text/plain", "response_timeout", "", Outcome.BROKEN, True),
        ("text/plain", "upstream_reset_after_response_started", "cut", Outcome.BROKEN, True),
    ],
)
def test_endings_after_the_response_headers(
    content_type: str, details: str, report: str, verdict: Outcome, drains: bool
) -> None:
    """A slot drains where the server may still be at work: unless the end of the response is
    proved. That nobody reported a bad end proves nothing."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.ask(exchange, envoy.response_headers(content_type=content_type, details=details))
    if "complete" in report:
        exchange.complete()
    if "cut" in report:
        exchange.break_off()
    assert harness.end(exchange).outcome is verdict
    assert (harness.leased, harness.draining) == ((1, 1) if drains else (0, 0))


@pytest.mark.parametrize(
    ("response", "is_asked_for"),
    [
        (envoy.response_headers(content_type=STREAM), True),
        (envoy.response_headers(body_bytes=None), True),
        (envoy.response_headers("500", body_bytes=None), True),
        (envoy.response_headers(body_bytes=0), False),
        (envoy.response_headers(body_bytes=1_000_000), False),
        (envoy.response_headers("503", body_bytes=None, details="no_healthy_upstream"), False),
    ],
)
def test_envoy_is_asked_for_the_end_that_headers_do_not_prove(
    response: pb.ProcessingRequest, is_asked_for: bool
) -> None:
    """Others cost no message."""
    harness = ExchangeHarness(1)
    reply = harness.ask(harness.picked(), response)
    assert reply is not None
    fields = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert ("x-coxswain-unbounded" in fields) is is_asked_for


def test_trailers_prove_the_end_of_a_response() -> None:
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.ask(exchange, envoy.response_headers(content_type=STREAM))
    harness.ask(exchange, envoy.part("response_trailers"))
    harness.end(exchange)
    assert harness.leased == 0


def test_an_end_without_a_proof_teaches_nothing() -> None:
    """A client that left at once would make its server look quick."""
    samples = {}
    for is_proved in (True, False):
        harness = ExchangeHarness(1)
        exchange = harness.picked()
        harness.ask(exchange, envoy.response_headers(content_type=STREAM))
        if is_proved:
            exchange.complete()
        harness.end(exchange)
        latency = harness.fleet.dispatcher.state.latency
        samples[is_proved] = latency.endpoint(harness.fleet.addresses[0]).samples
    assert samples == {True: 1, False: 0}


@pytest.mark.parametrize(("status", "teaches"), [("200", True), ("500", False), ("400", False)])
def test_errors_teach_nothing_of_speed(status: str, teaches: bool) -> None:
    """A server that fails at once would look like the quickest."""
    harness = ExchangeHarness(1)
    timing = harness.fleet.dispatcher.state.latency
    before = timing.estimate(harness.fleet.addresses[0], harness.fleet.now)
    exchange = harness.exchange()
    body = b'{"prompt":"' + b"row " * 1000 + b'"}'
    harness.ask(exchange, envoy.with_body(envoy.request_headers()))
    harness.ask(exchange, envoy.body(body))
    harness.ask(exchange, envoy.response_headers(status))
    harness.end(exchange)
    harness.fleet.now += 10.0
    after = timing.estimate(harness.fleet.addresses[0], harness.fleet.now)
    assert (after.prefill_s != before.prefill_s) is teaches


def test_an_ending_before_any_answer() -> None:
    """The client left while its server computes: the slot drains."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    record = harness.end(exchange)
    assert (record.outcome, record.status, record.attempts) == (Outcome.BROKEN, 0, 0)
    assert harness.draining == 1


def test_an_ending_before_any_message() -> None:
    """An empty stream held nothing."""
    harness = ExchangeHarness(1)
    record = harness.end(harness.exchange())
    assert (record.outcome, record.endpoint, record.request_id) == (Outcome.PASSED, None, "")


def test_it_ends_once() -> None:
    """Twice is a bug of the shell; nothing is released twice."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.end(exchange)
    with pytest.raises(ExchangeError, match="ended twice"):
        harness.end(exchange)
    assert (harness.leased, harness.draining) == (1, 1)


# An operator's cancellation


def test_cancelling_one_that_waits() -> None:
    """Refused by way of its ticket; nothing has to be written by who cancels."""
    harness = ExchangeHarness(1)
    harness.picked()
    waiting, _ = harness.waiting()
    assert not waiting.cancel(harness.fleet.now)
    assert envoy.rejection(waiting.take_reply()) == (503, "cancelled")
    assert harness.end(waiting).reason is Reason.CANCELLED


def test_trailers_of_one_that_waits() -> None:
    """Rejected by way of its ticket, as one that an operator cancels."""
    harness = ExchangeHarness(1)
    harness.picked()
    waiting, _ = harness.waiting()
    assert envoy.rejection(harness.ask(waiting, envoy.part("request_trailers"))) == (
        400,
        "bad-request",
    )
    assert harness.end(waiting).reason is Reason.BAD_REQUEST


def test_cancelling_one_that_runs() -> None:
    """The rejection must be written at once, and once; its slot drains."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    assert exchange.cancel(harness.fleet.now)
    assert envoy.rejection(exchange.take_reply()) == (503, "cancelled")
    assert not exchange.cancel(harness.fleet.now)
    record = harness.end(exchange)
    assert (record.outcome, record.reason) == (Outcome.BROKEN, Reason.CANCELLED)
    assert harness.draining == 1


@pytest.mark.parametrize("is_duplex", [False, True])
def test_cancelling_one_whose_body_still_comes(is_duplex: bool) -> None:
    """Refused at once, also in the middle of it; nothing that comes later changes that."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    harness.ask(exchange, envoy.with_body(envoy.request_headers(), is_duplex=is_duplex))
    if is_duplex:
        harness.ask(exchange, envoy.body(b'{"mess', end_of_stream=False))
    assert exchange.snapshot(harness.fleet.now).state is ExchangeState.READING
    assert exchange.cancel(harness.fleet.now)
    assert envoy.rejection(exchange.take_reply()) == (503, "cancelled")
    assert not exchange.cancel(harness.fleet.now)
    for late in (envoy.body(b'ages":[]}'), envoy.part("request_trailers")):
        assert harness.ask(exchange, late) is None
    record = harness.end(exchange)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.CANCELLED)
    assert (record.decided_at, harness.leased) == (None, 0)


def test_cancelling_what_is_over() -> None:
    """Neither a refused, nor an unborn, nor an ended exchange has anything to cancel."""
    harness = ExchangeHarness(1, queue_max_requests=0)
    harness.picked()
    rejected, unborn, ended = (harness.exchange() for _ in range(3))
    harness.ask(rejected, envoy.request_headers())
    harness.end(ended)
    for exchange in (rejected, unborn, ended):
        assert not exchange.cancel(harness.fleet.now)
        assert exchange.take_reply() is None


# What others see


def test_snapshots() -> None:
    """Each state as the operator sees it, with where, how long and how heavy."""
    harness = ExchangeHarness(1)
    first = harness.picked()
    waiting, ticket = harness.waiting(x_request_id="w")
    passing = harness.exchange()
    harness.ask(passing, envoy.request_headers("/tokenize"))
    harness.fleet.now += 2.0
    sights = [exchange.snapshot(harness.fleet.now) for exchange in (first, waiting, passing)]
    assert [snapshot.state for snapshot in sights] == [
        ExchangeState.RUNNING,
        ExchangeState.QUEUED,
        ExchangeState.PASSING,
    ]
    address = harness.fleet.addresses[0]
    assert [snapshot.endpoint for snapshot in sights] == [address, None, address]
    assert [snapshot.weight_slots for snapshot in sights] == [1, 1, 0]
    assert [snapshot.waited_s for snapshot in sights] == [0.0, 2.0, 0.0]
    assert [snapshot.age_s for snapshot in sights] == [2.0, 2.0, 2.0]
    assert [snapshot.ticket for snapshot in sights] == [None, ticket, None]
    assert [snapshot.request_id for snapshot in sights] == ["", "w", ""]
    harness.ask(first, envoy.response_headers())
    assert first.snapshot(harness.fleet.now).state is ExchangeState.RESPONDING
    harness.end(first)
    assert first.snapshot(harness.fleet.now).state is ExchangeState.OVER


# Bad input


def test_a_request_without_a_path() -> None:
    """400 in OpenAI's shape; nothing is held."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    assert envoy.rejection(harness.ask(exchange, envoy.request_headers(None))) == (
        400,
        "bad-request",
    )
    record = harness.end(exchange)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.BAD_REQUEST)
    assert harness.leased == 0


def test_a_bad_patience() -> None:
    """The client is told, not guessed at."""
    request = envoy.request_headers(x_coxswain_queue_timeout_ms="soon")
    assert envoy.rejection(ExchangeHarness(1).ask(ExchangeHarness(1).exchange(), request)) == (
        400,
        "bad-request",
    )


@pytest.mark.parametrize(
    "request_",
    [
        envoy.request_headers(None, x_request_id="mine"),
        envoy.request_headers(x_coxswain_queue_timeout_ms="-1", x_request_id="mine"),
    ],
)
def test_who_was_not_understood_is_found_by_its_id(request_: pb.ProcessingRequest) -> None:
    """The client's own: it is what people search the log for."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    harness.ask(exchange, request_)
    assert harness.end(exchange).request_id == "mine"


def test_an_unknown_kind() -> None:
    """A message that a later Envoy may send is an error that keeps what is held."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    with pytest.raises(ProtocolError, match="unknown type of message"):
        harness.feed(exchange, envoy.unknown_kind())
    assert harness.end(exchange).outcome is Outcome.BROKEN
    assert harness.draining == 1


def test_request_headers_twice() -> None:
    """A second request on one stream does not take a second slot."""
    harness = ExchangeHarness(2)
    exchange = harness.picked()
    with pytest.raises(ProtocolError, match="arrived twice"):
        harness.feed(exchange, envoy.request_headers())
    assert harness.leased == 1


def test_response_headers_twice() -> None:
    """The first ones set the time to first token; the lease is where the last ones say."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    harness.fleet.now += 1.0
    harness.ask(exchange, envoy.response_headers())
    harness.fleet.now += 1.0
    assert harness.ask(exchange, envoy.response_headers("500")) is not None
    record = harness.end(exchange)
    assert (record.first_token_s, record.status) == (1.0, 500)
    assert harness.leased == 0


def test_response_headers_first() -> None:
    """A filter that skips request headers gets its answers, and no slot is taken."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    reply = harness.ask(exchange, envoy.response_headers(served=str(harness.fleet.addresses[0])))
    assert reply is not None and reply.WhichOneof("response") == "response_headers"
    assert envoy.set_headers(reply.response_headers.response.header_mutation) == {}
    assert harness.end(exchange).outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", ["request_body", "response_body", "response_trailers"])
def test_parts_pass_unchanged(kind: str) -> None:
    """Also the empty last chunk, and a doubled end of stream: each gets its own answer."""
    harness = ExchangeHarness(1)
    exchange = harness.picked()
    for _ in range(2):
        reply = harness.ask(exchange, envoy.part(kind))
        assert reply is not None and reply.WhichOneof("response") == kind
    assert harness.leased == 1


def test_observability_mode() -> None:
    """Envoy would not wait for an answer: no slot is taken, and the operator is told."""
    harness = ExchangeHarness(1)
    request = envoy.request_headers()
    request.observability_mode = True
    with pytest.raises(ProtocolError, match="observability mode"):
        harness.feed(harness.exchange(), request)
    assert harness.leased == 0


@pytest.mark.parametrize(("slots", "status"), [((2,), 200), ((), 503)])
def test_what_the_picker_answers_itself_is_recorded_with_its_status(
    slots: tuple[int, ...], status: int
) -> None:
    """The health of a fleet with and without servers."""
    harness = ExchangeHarness(*slots)
    harness.options = replace(harness.options, envoy=EnvoySettings(health=True))
    exchange = harness.exchange()
    reply = harness.ask(exchange, envoy.request_headers("/health", "GET"))
    assert reply is not None and reply.immediate_response.status.code == status
    record = exchange.end(harness.fleet.now)
    assert (record.outcome, record.reason, record.status) == (Outcome.PASSED, None, status)


def in_mode(body_mode: int, **headers: str) -> pb.ProcessingRequest:
    """Request headers of a filter with that body mode; JSON bodies are wanted."""
    request = envoy.request_headers(content_type="application/json", **headers)
    request.protocol_config.request_body_mode = body_mode  # type: ignore[assignment]
    request.protocol_config.response_body_mode = 4 if body_mode == 4 else 0  # type: ignore[assignment]
    return request


KINDS = st.sampled_from(
    [
        envoy.request_headers(),
        envoy.request_headers("/health", "GET"),
        envoy.request_headers(None),
        envoy.request_headers(x_coxswain_queue_timeout_ms="0"),
        in_mode(0),
        in_mode(3),
        in_mode(4),
        in_mode(4, x_coxswain_queue_timeout_ms="0"),
        envoy.response_headers(),
        envoy.response_headers(content_type=STREAM, served="10.0.0.1:8001", attempts=3),
        envoy.response_headers("503", details="upstream_reset{connection_failure}", attempts=9),
        envoy.body(),
        envoy.body(b'{"n": 2, "prompt": "x"}'),
        envoy.body(b'{"n": 1e999, "prompt": [', end_of_stream=False),
        envoy.body(b"x" * 100_000, end_of_stream=False),
        envoy.part("request_trailers"),
        envoy.part("response_body"),
        envoy.part("response_trailers"),
        envoy.unknown_kind(),
        pb.ProcessingRequest(),
    ]
)
DEEDS = st.tuples(
    st.integers(0, 3),
    st.one_of(KINDS, st.sampled_from(["end", "cancel", "break", "complete", "take"])),
)


@given(st.lists(DEEDS, max_size=40), st.integers(0, 3))
def test_whatever_four_streams_say(
    deeds: list[tuple[int, pb.ProcessingRequest | str]], queue_max_requests: int
) -> None:
    """Any messages in any order on four streams, ended anywhere: no lease and no ticket is left.

    A stream is over after a protocol error, as the servicer does it; one that waits is fed
    nothing, for its coroutine waits too.
    """
    harness = ExchangeHarness(1, 1, queue_max_requests=queue_max_requests)
    exchanges = [harness.exchange() for _ in range(4)]

    def end(number: int) -> None:
        harness.end(exchanges[number])
        exchanges[number] = harness.exchange()

    for number, deed in deeds:
        exchange = exchanges[number]
        harness.fleet.now += 0.1
        if deed == "end":
            end(number)
        elif deed == "cancel":
            exchange.cancel(harness.fleet.now)
        elif deed == "break":
            exchange.break_off()
        elif deed == "complete":
            exchange.complete()
        elif deed == "take":
            exchange.take_reply()
        elif isinstance(deed, pb.ProcessingRequest) and exchange.ticket is None:
            try:
                harness.feed(exchange, deed)
            except ProtocolError:
                end(number)
        held = sum(exchange.stage is Stage.LEASED for exchange in exchanges)
        leases = [
            x for a in harness.fleet.addresses for x in harness.fleet.account(a).leases.values()
        ]
        assert sum(lease.state is LeaseState.OPEN for lease in leases) == held
        assert all(harness.fleet.account(a).free_slots >= 0 for a in harness.fleet.addresses)
        waiting = sum(exchange.ticket is not None for exchange in exchanges)
        assert len(harness.fleet.dispatcher.queue) == waiting <= queue_max_requests
    for number in range(4):
        end(number)
    harness.fleet.pass_time(10.0)
    assert (harness.leased, len(harness.fleet.dispatcher.queue)) == (0, 0)


def test_a_closed_path_is_rejected_and_takes_nothing() -> None:
    """Also where all that Envoy has is routes of its own."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    headers = envoy.request_headers("/tools", method="GET")
    assert envoy.rejection(harness.ask(exchange, headers)) == (403, "blocked-path")
    record = exchange.end(harness.fleet.now)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.BLOCKED_PATH)
    assert (record.status, record.method) == (403, "GET")


def test_an_endpoint_is_called_by_its_name() -> None:
    """In the response header, the list of requests and the record; the address stays beside it."""
    harness = ExchangeHarness(1)
    fleet = harness.fleet
    (address,) = fleet.addresses
    specs = [EndpointSpec(address=address, name="gpu-1")]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    exchange = harness.picked()
    snapshot = exchange.snapshot(fleet.now)
    assert (snapshot.endpoint, snapshot.endpoint_name) == (address, "gpu-1")
    reply = harness.ask(exchange, envoy.response_headers(served=str(address)))
    assert reply is not None
    headers = envoy.set_headers(reply.response_headers.response.header_mutation)
    assert headers["x-coxswain-endpoint"] == "gpu-1"
    fleet.dispatcher.set_members("test", [], fleet.now)
    record = harness.end(exchange)
    assert (record.endpoint, record.endpoint_name) == (address, "gpu-1"), "though it left then"


@pytest.mark.parametrize("is_last_event_there", [True, False])
def test_an_overflow_at_the_end_of_a_stream_is_seen(is_last_event_there: bool) -> None:
    """While the others that ran there are known, so before the slot is given back."""
    stream = (LLAMACPP / "overflow_stream_chat.txt").read_bytes()
    harness = ExchangeHarness(2)
    first, other = harness.exchange(), harness.exchange()
    for exchange in (first, other):
        for message in (
            envoy.with_body(envoy.request_headers(), is_duplex=True),
            envoy.body(b'{"prompt": "p"}'),
            envoy.response_headers(content_type=STREAM),
        ):
            harness.feed(exchange, message)
            while exchange.take_reply() is not None:
                pass
        assert exchange.lease is not None
    part = envoy.part("response_body")
    part.response_body.body = stream if is_last_event_there else stream[: stream.rindex(b"data")]
    part.response_body.end_of_stream = True
    harness.feed(first, part)
    assert first.end(harness.fleet.now).is_overflow is is_last_event_there
    endpoint = harness.fleet.endpoint(harness.fleet.addresses[0])
    assert endpoint.overflows == is_last_event_there
    assert not endpoint.is_ejected
    assert first.lease is None and other.lease is not None
    other.end(harness.fleet.now)
