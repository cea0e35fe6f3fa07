"""Claims about extproc/stream/exchange_continuer.py; tests/fronts/test_takeover.py has links."""

from __future__ import annotations

import asyncio

from extproc.stream.exchange import ExchangeOptions
from extproc.stream.exchange_continuer import PAUSE_S, PLACE_KEPT_S, ExchangeContinuer
from extproc.stream.held_state import HeldState
from extproc.stream.running_stream import RunningStream
from extproc.transport.patience import LONG, PATIENCE
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, Rig, eventually
from tests.fakes.small_fleet import SmallFleet


class Continued:
    """A fleet of one slot, and what continues its exchanges."""

    def __init__(self) -> None:
        self.rig = Rig(SmallFleet(1), ExchangeOptions())
        self.fleet = self.rig.fleet
        self.continuer = ExchangeContinuer(
            self.rig.processor, self.fleet.dispatcher, lambda: self.fleet.now
        )
        self.streams: dict[str, RunningStream] = {}

    def begin(self, name: str) -> RunningStream:
        """A call whose request is not read yet; its Envoy is patient."""
        call = HandCall()
        call.metadata = ((PATIENCE, LONG),)
        stream = self.continuer.begin(call, name, self.fleet.now)
        assert isinstance(stream, RunningStream)
        self.streams[name] = stream
        return stream

    def ask(self, name: str) -> RunningStream:
        stream = self.begin(name)
        message = envoy.request_headers(x_request_id=name).SerializeToString()
        self.continuer.claim(stream, message)
        stream.receive(message)
        return stream

    def lose(self, name: str) -> None:
        """Its front is gone."""
        stream = self.streams[name]
        self.continuer.leave(stream)
        stream.gone()

    def state(self, name: str) -> HeldState | None:
        return self.continuer.state_of(self.streams[name])

    def queued(self) -> list[str]:
        return [ticket.request.id for ticket in self.fleet.dispatcher.queue]


async def test_what_a_front_is_to_know_of_an_exchange() -> None:
    there = Continued()
    there.begin("undecided")
    there.ask("running")
    there.ask("queued")
    assert there.state("undecided") is None
    running, queued = there.state("running"), there.state("queued")
    assert running is not None and queued is not None
    assert there.continuer.is_leased(running) and not there.continuer.is_leased(queued)
    assert there.continuer.is_final(running) and not there.continuer.is_final(queued)
    assert there.continuer.place_of(running) is None
    ticket = there.streams["queued"].ticket
    assert ticket is not None and there.continuer.place_of(queued) == ticket.id


async def test_a_place_is_kept_for_a_while_and_given_back_once() -> None:
    there = Continued()
    for name in ("running", "first", "second"):
        there.ask(name)
    there.lose("first")
    assert there.queued() == ["second"]
    there.ask("first")
    assert there.queued() == ["first", "second"]
    assert there.continuer.claimed == 1
    there.lose("first")
    there.fleet.now += PLACE_KEPT_S + 1
    there.ask("first")
    assert there.queued() == ["second", "first"]
    assert there.continuer.claimed == 1


async def test_a_message_that_makes_no_sense_claims_no_place() -> None:
    there = Continued()
    for name in ("running", "first"):
        there.ask(name)
    there.lose("first")
    there.continuer.claim(there.begin("other"), b"\xff")
    assert there.continuer.claimed == 0
    there.ask("first")
    assert there.continuer.claimed == 1


async def test_a_slot_waits_for_those_that_come_back_but_not_for_long() -> None:
    there = Continued()
    for name in ("running", "first", "second"):
        there.ask(name)
    there.lose("first")
    answer = envoy.response_headers(body_bytes=10, served=str(there.fleet.addresses[0]))
    there.streams["running"].receive(answer.SerializeToString())
    there.continuer.assign()
    await asyncio.sleep(0)
    assert there.queued() == ["second"], "the slot is held for the first one"
    there.fleet.now += PAUSE_S + 0.1
    await eventually(lambda: there.queued() == [])
