"""Claims about extproc/processes/fronts/returning_requests.py; processes are in
tests/e2e/test_fronts.py."""

from __future__ import annotations

import asyncio

from extproc.processes.fronts.returning_requests import (
    EARLIER_S,
    LATE_S,
    MAX_SILENT_S,
    PAUSE_S,
    PLACE_KEPT_S,
    RETURN_S,
)
from tests.fakes import envoy_messages as envoy
from tests.fakes.continued import Continued
from tests.fakes.envoy_stream import eventually

FRONT = "front-1"


def serve(there: Continued, name: str) -> None:
    """End the response of a request that runs."""
    answer = envoy.response_headers(body_bytes=10, served=str(there.fleet.addresses[0]))
    there.streams[name].receive(answer.SerializeToString())


async def test_a_place_is_kept_for_a_while_and_given_back_once() -> None:
    there = Continued()
    for name in ("running", "first", "second"):
        there.ask(name)
    there.lose("first")
    assert there.queued() == ["second"]
    there.ask("first")
    assert there.queued() == ["first", "second"]
    assert there.resumption.returning.claimed == 1
    there.lose("first")
    there.fleet.now += PLACE_KEPT_S + 1
    there.ask("first")
    assert there.queued() == ["second", "first"]
    assert there.resumption.returning.claimed == 1


async def test_each_of_several_with_one_id_has_its_place_again() -> None:
    there = Continued()
    there.ask("running")
    for name in ("same", "between", "same"):
        there.ask(name)
        if name == "same":
            there.streams[f"same-{len(there.streams)}"] = there.streams.pop("same")
    names = [name for name in there.streams if name.startswith("same")]
    for name in names:
        there.lose(name)
    assert there.queued() == ["between"]
    for _ in names:
        there.ask("same")
    assert there.queued() == ["same", "between", "same"]


async def test_a_message_that_makes_no_sense_claims_no_place() -> None:
    there = Continued()
    for name in ("running", "first"):
        there.ask(name)
    there.lose("first")
    there.resumption.claim(there.begin("other"), b"\xff")
    assert there.resumption.returning.claimed == 0
    there.ask("first")
    assert there.resumption.returning.claimed == 1


async def test_a_slot_waits_for_those_that_come_back_but_not_for_long() -> None:
    there = Continued()
    for name in ("running", "first", "second"):
        there.ask(name)
    there.lose("first")
    serve(there, "running")
    there.resumption.assign()
    await asyncio.sleep(0)
    assert there.queued() == ["second"], "the slot is held for the first one"
    there.fleet.now += PAUSE_S + 0.1
    await eventually(lambda: there.queued() == [])


async def test_no_slot_is_assigned_while_a_front_stands_still() -> None:
    there = Continued()
    for name in ("running", "queued"):
        there.ask(name)
    there.resumption.front_silent(FRONT)
    there.resumption.front_silent(FRONT)
    serve(there, "running")
    await asyncio.sleep(0.1)
    assert there.queued() == ["queued"]
    there.resumption.front_heard(FRONT)
    await eventually(lambda: there.queued() == [])


async def test_a_front_that_nobody_ends_holds_the_queue_no_longer_than_it_may() -> None:
    there = Continued()
    there.resumption.front_silent(FRONT)
    there.ask("queued")
    there.fleet.now += MAX_SILENT_S - 0.1
    await asyncio.sleep(0.1)
    assert there.queued() == ["queued"]
    there.fleet.now += 0.2
    await eventually(lambda: there.queued() == [])


async def test_what_came_to_a_front_that_stood_still_has_the_place_of_its_arrival() -> None:
    """Envoy sends it again when that front is killed. Those that are queued meanwhile are behind
    it, and no slot is assigned before it is there."""
    there = Continued()
    there.ask("running")
    began = there.fleet.now
    there.ask("before")
    there.fleet.now += 0.5
    there.resumption.front_silent(FRONT)
    there.fleet.now += 0.5
    there.ask("after")
    serve(there, "running")
    there.fleet.now += 0.5
    there.resumption.front_lost(FRONT)
    await asyncio.sleep(0.1)
    for name, arrived_at in (("late", began + 0.8), ("later", began + 1.2), ("first", began + 0.1)):
        there.fleet.now += 0.01
        there.ask(name, arrived_at=arrived_at)
    assert there.queued() == ["before", "first", "late", "after", "later"]
    assert there.resumption.returning.late == 3
    there.fleet.now += PAUSE_S + 0.1
    await eventually(lambda: there.queued() == ["first", "late", "after", "later"])
    assert not there.fleet.dispatcher.faults(there.fleet.now)


async def test_envoy_may_open_a_stream_again_before_the_loss_is_noticed() -> None:
    """Of a request that nobody has seen: it is older than its stream."""
    there = Continued()
    there.ask("running")
    began = there.fleet.now
    there.resumption.front_silent(FRONT)
    there.fleet.now += 1.0
    there.ask("queued")
    there.fleet.now += 1.0
    there.ask("late", arrived_at=began + 0.5)
    there.ask("new", arrived_at=there.fleet.now - 0.01)
    assert there.queued() == ["late", "queued", "new"]
    there.resumption.front_lost(FRONT)
    there.ask("another", arrived_at=began + 0.7)
    assert there.queued() == ["late", "another", "queued", "new"]


async def test_requests_that_do_not_come_again_are_not_waited_for() -> None:
    there = Continued()
    there.resumption.front_silent(FRONT)
    there.ask("queued")
    there.resumption.front_lost(FRONT)
    there.fleet.now += PAUSE_S - 0.1
    await asyncio.sleep(0.1)
    assert there.queued() == ["queued"]
    there.fleet.now += 0.2
    await eventually(lambda: there.queued() == [])


async def test_a_stream_of_late_requests_holds_the_queue_for_a_second_at_most() -> None:
    there = Continued()
    there.resumption.front_silent(FRONT)
    there.resumption.front_lost(FRONT)
    lost_at, number = there.fleet.now, 0
    while there.fleet.now < lost_at + RETURN_S:
        there.ask(f"r{number}", arrived_at=lost_at - 0.1)
        number += 1
        there.fleet.now += PAUSE_S / 2
        await asyncio.sleep(0.03)
    await eventually(lambda: there.queued() == [f"r{each}" for each in range(1, number)])


async def test_envoys_word_counts_for_what_came_before_a_loss_alone() -> None:
    """And for no longer than that can be; its clock may be wrong."""
    there = Continued()
    there.ask("running")
    there.ask("no loss", arrived_at=there.fleet.now - 9)
    lost_at = there.fleet.now = there.fleet.now + 10
    there.ask("waiting")
    there.resumption.front_lost(FRONT)
    there.fleet.now += 0.1
    there.ask("after the loss", arrived_at=lost_at + 0.05)
    there.ask("in the future", arrived_at=lost_at + 900)
    there.ask("nothing said")
    there.ask("nonsense", arrived_at="tomorrow")
    there.ask("a client's word", arrived_at=lost_at - 0.1, waits_long=False)
    there.ask("long ago", arrived_at=0.0)
    assert there.resumption.returning.late == 1
    [long_ago] = [each for each in there.fleet.dispatcher.queue if each.request.id == "long ago"]
    assert long_ago.entered_at == lost_at - EARLIER_S
    assert there.queued()[:3] == ["no loss", "long ago", "waiting"]
    there.fleet.now = lost_at + LATE_S
    there.ask("too late", arrived_at=lost_at - 0.1)
    assert there.queued()[-1] == "too late"
    assert there.resumption.returning.late == 1


async def test_a_takeover_assigns_nothing_before_everything_is_placed() -> None:
    """Also when a front goes on meanwhile."""
    there = Continued()
    there.resumption.hold()
    there.resumption.front_silent(FRONT)
    there.ask("queued")
    there.resumption.front_heard(FRONT)
    await asyncio.sleep(0.1)
    assert there.queued() == ["queued"]
    there.resumption.assign()
    await eventually(lambda: there.queued() == [])


async def test_nobody_is_refused_for_the_clock_of_an_envoy() -> None:
    """A machine was lost, and Envoy's clock is minutes behind: its requests have just arrived."""
    there = Continued()
    there.ask("running")
    there.ask("queued")
    there.resumption.leader_lost()
    there.ask("new", arrived_at=there.fleet.now - 600.0)
    there.fleet.dispatcher.advance(there.fleet.now)
    assert there.queued() == ["queued", "new"]
    there.ask("old", arrived_at=there.fleet.now - 30.0)
    assert there.queued() == ["old", "queued", "new"]
    there.fleet.now += 20.0
    there.fleet.dispatcher.advance(there.fleet.now)
    assert there.queued() == ["old", "queued", "new"]


async def test_a_short_wait_is_whole_while_the_clock_of_an_envoy_is_behind() -> None:
    """A front stood still for as long as it may and was lost, and each request looks as if it had
    come before: as long ago as can be, which is longer than it would wait."""
    there = Continued()
    there.ask("running")
    there.ask("queued")
    there.resumption.front_silent(FRONT)
    there.fleet.now += 2.0
    there.resumption.front_lost(FRONT)
    there.fleet.now += LATE_S - 0.1
    stream = there.ask(
        "hurried", arrived_at=there.fleet.now - 86_400.0, x_coxswain_queue_timeout_ms="100"
    )
    ticket = stream.ticket
    assert ticket is not None and there.queued() == ["hurried", "queued"]
    assert there.fleet.now - ticket.entered_at > 4.0
    there.fleet.now += 0.09
    there.fleet.dispatcher.advance(there.fleet.now)
    assert there.queued() == ["hurried", "queued"]
    there.fleet.now += 0.02
    there.fleet.dispatcher.advance(there.fleet.now)
    assert there.queued() == ["queued"]
