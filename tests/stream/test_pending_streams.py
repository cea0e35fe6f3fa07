"""Claims about extproc/stream/pending_streams.py."""

from __future__ import annotations

import asyncio

from extproc.core.decision import Picked
from extproc.core.queue.ticket import Ticket
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, NoOwner
from tests.fakes.small_fleet import SmallFleet

KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-batch"): "batch"})


class Line:
    """One slot that is taken, and exchanges that wait for it."""

    def __init__(self) -> None:
        self.pending = PendingStreams()
        self.fleet = SmallFleet(1)
        self.fleet.listener.on_settled = self.pending.settled
        self.lease = self.fleet.pick()

    def stream(self, request_id: str = "", key: str = "") -> tuple[RunningStream, Ticket]:
        options = ExchangeOptions(keys=KEYS if key else None)
        exchange = Exchange(self.fleet.dispatcher, options, self.fleet.now)
        request = envoy.request_headers(x_request_id=request_id, authorization=key)
        exchange.feed(request, self.fleet.now)
        assert exchange.ticket is not None
        return RunningStream(exchange, HandCall(), NoOwner(lambda: self.fleet.now)), exchange.ticket


async def test_a_settlement_has_an_owner_at_once() -> None:
    """The exchange holds its lease before anything else has run."""
    line = Line()
    stream, ticket = line.stream()
    line.pending.enter(stream, ticket)
    line.fleet.finish(line.lease)
    assert stream.exchange.stage is Stage.LEASED
    assert isinstance(line.fleet.listener.settlements[ticket.id], Picked)


async def test_leaving() -> None:
    """Who left is forgotten; leaving once more, or after a settlement, is no error."""
    line = Line()
    first, second = line.stream(), line.stream()
    line.pending.enter(*first)
    line.pending.enter(*second)
    line.pending.leave(first[1])
    line.pending.leave(first[1])
    line.fleet.dispatcher.withdraw(first[1], line.fleet.now)
    line.fleet.finish(line.lease)
    line.pending.leave(second[1])
    assert second[0].exchange.stage is Stage.LEASED
    assert line.pending._waiting == {}


async def test_a_ticket_that_nobody_waits_for() -> None:
    """Its settlement is not taken: the caller gives the lease back."""
    line = Line()
    _, ticket = line.stream()
    line.fleet.finish(line.lease)
    assert line.pending.settled(ticket, line.fleet.listener.settlements[ticket.id]) is False


async def test_a_settlement_that_cannot_be_told() -> None:
    """The stream owns the lease all the same, and ends with the failure."""
    line = Line()
    stream, ticket = line.stream()
    line.pending.enter(stream, ticket)
    stream.exchange._reader.request = None  # what the answer is made of
    line.fleet.finish(line.lease)
    assert stream.lease is not None
    await asyncio.sleep(0)
    assert isinstance(stream._call, HandCall)
    assert stream._call.status == (13, "the endpoint picker failed")
    stream.exchange.end(line.fleet.now)
    assert line.fleet.account(line.fleet.addresses[0]).leased_slots == 0


async def test_who_waits_is_found_by_the_id_its_client_knows() -> None:
    """While it waits; of several with one id the first to come, and each when those before it are
    gone. One that comes later and leaves hides none."""
    line = Line()
    first, second, third = (line.stream("a") for _ in range(3))
    for one in (first, second, third):
        line.pending.enter(*one)
    assert line.pending.find("a") is first[1] and line.pending.find("b") is None
    assert line.pending.stream_of("a") is third[0]
    line.pending.leave(third[1])
    assert line.pending.find("a") is first[1] and line.pending.stream_of("a") is second[0]
    line.pending.leave(first[1])
    assert line.pending.find("a") is second[1]
    line.pending.leave(second[1])
    assert line.pending.find("a") is None and line.pending.stream_of("a") is None
    assert line.pending._by_request == {}


async def test_a_client_finds_its_own_request_behind_that_of_another() -> None:
    """Who guesses an id and comes first does not stand in for it."""
    line = Line()
    others, own = (line.stream("a", f"Bearer sk-{name}") for name in ("web", "batch"))
    for one in (others, own):
        line.pending.enter(*one)
    assert line.pending.find("a", "batch") is own[1]
    assert line.pending.find("a", "web") is line.pending.find("a", "free") is others[1]


async def test_who_has_no_id_is_not_found() -> None:
    """An empty id names nobody."""
    line = Line()
    line.pending.enter(*line.stream())
    assert line.pending.find("") is None


async def test_who_was_served_is_not_found() -> None:
    """The wait is over with the settlement, before anything else has run."""
    line = Line()
    line.pending.enter(*line.stream("a"))
    line.fleet.finish(line.lease)
    assert line.pending.find("a") is None
