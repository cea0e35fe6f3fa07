"""Claims about extproc/processes/fronts: calls that outlive their core, and their front."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from extproc.core.exchange_record import Outcome
from extproc.core.held_state import ticket_of
from extproc.core.rejection import Reason
from extproc.core.slots.lease import LeaseState
from extproc.header_names import USAGE
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.codec import PROCESS
from extproc.transport.long_wait import LONG, LONG_WAIT
from extproc.usage.response_stream import PREFIX, with_responses
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, eventually
from tests.fakes.fronts import OTHER, FakeCore, FakeFront, sent_to, settle

if TYPE_CHECKING:
    from extproc.processes.fronts.front_link import CoreCall


def is_held(call: HandCall) -> bool:
    return any(reply.HasField("override_message_timeout") for reply in call.sent)


async def until_held(call: HandCall) -> None:
    await eventually(lambda: is_held(call))


async def until_sent(call: HandCall) -> None:
    await eventually(lambda: sent_to(call) is not None)


async def two_fronts(core: FakeCore) -> tuple[FakeFront, FakeFront]:
    """Two that follow a core, which begins to lead."""
    front, other = FakeFront("a"), FakeFront("b")
    await front.follow(core)
    await other.follow(core)
    core.lead()
    return front, other


def is_queued(core: FakeCore, call: CoreCall) -> bool:
    return call.handler is not None and ticket_of(state_at(core, call)) is not None


def state_at(core: FakeCore, call: CoreCall) -> tuple[Any, ...] | None:
    assert call.handler is not None
    return core.resumption.state_of(call.handler)


async def one_running(request_id: str) -> tuple[FakeFront, FakeCore, HandCall]:
    """A front that follows a core with one slot, and a request that has it."""
    front, first = FakeFront(), FakeCore(1)
    await front.follow(first)
    first.lead()
    call = front.ask(request_id)
    await eventually(lambda: sent_to(call))
    return front, first, call


async def test_a_request_is_served_through_a_front() -> None:
    front, core = FakeFront(), FakeCore(1)
    await front.follow(core)
    core.lead()
    call = front.ask("a")
    await eventually(lambda: sent_to(call))
    assert core.leased() == [1]
    call.say(envoy.response_headers(served=str(sent_to(call))))
    await eventually(lambda: len(call.sent) == 2)
    call.reset()
    await eventually(lambda: core.rig.records)
    assert (
        core.leased() == [0]
        or core.dispatcher.view.slots_at(core.rig.fleet.addresses[0]).has_draining
    )


async def test_queued_requests_keep_their_order_and_running_ones_their_slots() -> None:
    """Nothing is sent to Envoy twice, and nobody who was queued is passed over."""
    front, other = FakeFront("a"), FakeFront("b")
    first = FakeCore(2)
    for each in (front, other):
        await each.follow(first)
    first.lead()
    running = [front.ask("r1"), other.ask("r2")]
    await eventually(lambda: all(map(sent_to, running)))
    queued = []
    for number in range(6):
        queued.append((front, other)[number % 2].ask(f"q{number}"))
        await eventually(lambda: is_held(queued[-1]))
    first.die()
    await settle()
    second = FakeCore(2)
    for each in (other, front):  # the order of the hellos does not matter
        await each.follow(second)
    assert second.lead() == 6
    await settle()
    assert second.leased() == [2]
    assert second.queued() == [f"q{number}" for number in range(6)]
    assert [len(call.sent) for call in running] == [1, 1]
    for call in queued:
        assert len(call.sent) == 1
    assert not second.dispatcher.faults(second.rig.fleet.now)
    for call in running:
        call.say(envoy.response_headers(body_bytes=10, served=str(sent_to(call))))
    await eventually(lambda: all(map(sent_to, queued[:2])))
    await settle()
    assert not any(map(sent_to, queued[2:]))
    assert second.leased() == [2]


async def test_a_request_that_came_without_a_core_comes_behind_those_that_were_queued() -> None:
    front, first, _ = await one_running("running")
    queued = front.ask("queued")
    await eventually(lambda: is_held(queued))
    first.die()
    await settle()
    late = front.ask("late")
    await settle()
    assert not late.sent
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    await eventually(lambda: is_held(late))
    assert second.queued() == ["queued", "late"]


async def test_what_came_without_a_core_is_heard_in_the_order_of_arrival_at_all_fronts() -> None:
    """Whenever each front has said hello: what came before that and after it."""
    front, other = FakeFront("a"), FakeFront("b")
    core = FakeCore(1)
    busy = front.ask("running")
    asked = []

    async def ask(at: FakeFront, now: float) -> None:
        at.now = now
        asked.append(at.ask(f"q{now:g}"))
        await settle()

    await ask(front, 1.0)
    await front.follow(core)
    await ask(front, 2.0)
    await ask(other, 3.0)
    await ask(front, 4.0)
    await ask(other, 5.0)
    await other.follow(core)
    await ask(other, 6.0)
    await ask(front, 7.0)
    await ask(other, 8.0)
    core.lead()
    await eventually(lambda: all(map(is_held, asked)))
    assert sent_to(busy)
    assert core.queued() == [f"q{number}" for number in range(1, 9)]


async def test_a_decision_that_no_front_heard_is_made_again() -> None:
    """The slot that the dead core gave is not lost."""
    front, first = FakeFront(), FakeCore(1)
    await front.follow(first)
    first.lead()
    for link in first.links:
        link._may_send = lambda: False  # it dies before it writes
    call = front.ask("a")
    await eventually(lambda: first.leased() == [1])
    first.die()
    await settle()
    assert not call.sent
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    await eventually(lambda: sent_to(call))
    assert second.leased() == [1]


@pytest.mark.parametrize("is_duplex", [False, True])
async def test_a_body_is_not_asked_for_twice(is_duplex: bool) -> None:
    """The core dies between the headers and the body, and in the middle of the queue."""
    front, first, running = await one_running("running")
    call = HandCall().open(front.table["/envoy.service.ext_proc.v3.ExternalProcessor/Process"])
    headers = envoy.request_headers(x_request_id="a", content_type="application/json")
    call.say(envoy.with_body(headers, is_duplex=is_duplex))
    await settle()
    asked = len(call.sent)
    assert asked == (0 if is_duplex else 1)
    first.die()
    await settle()
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    await settle()
    assert len(call.sent) == asked
    call.say(envoy.body(b'{"prompt": "row"}'))
    await eventually(lambda: is_held(call))
    second.die()
    await settle()
    third = FakeCore(1)
    await front.follow(third)
    third.lead()
    assert third.queued() == ["a"]
    running.say(envoy.response_headers(body_bytes=10, served=str(sent_to(running))))
    await eventually(lambda: third.queued() == [])
    await settle()
    kinds = [reply.WhichOneof("response") for reply in call.sent]
    assert kinds.count("request_body") == 1
    assert third.leased() == [1]


async def test_what_a_core_answered_is_not_answered_again() -> None:
    """Response headers that the core before has heard release the lease here too."""
    front, first, call = await one_running("a")
    call.say(envoy.response_headers(body_bytes=10, served=str(sent_to(call))))
    await eventually(lambda: len(call.sent) == 2)
    first.die()
    await settle()
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    await settle()
    assert len(call.sent) == 2
    assert second.leased() == [0]
    call.half_close()
    await eventually(lambda: call.status)
    assert not second.dispatcher.faults(second.rig.fleet.now)


@pytest.mark.parametrize("is_answered", [False, True])
async def test_the_next_core_hears_of_an_end_without_a_core(is_answered: bool) -> None:
    """It counts, and the slot is given back as ever: at once behind an answer, and with the word
    of the server where the client left."""
    front, first, call = await one_running("a")
    first.die()
    await settle()
    if is_answered:
        call.say(envoy.response_headers(body_bytes=10, served=str(sent_to(call))))
    call.reset()
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    [record] = second.rig.records
    assert record.outcome is (Outcome.SERVED if is_answered else Outcome.BROKEN)
    [address] = second.rig.fleet.addresses
    assert second.rig.fleet.account(address).has_draining is not is_answered
    await eventually(lambda: not front.calls._ended)
    third = FakeCore(1)
    second.die()
    await settle()
    await front.follow(third)
    third.lead()
    assert not third.rig.records, "it is told once"


@pytest.mark.parametrize("ends", ["before the hello", "after the hello"])
async def test_a_lease_that_has_ended_does_not_hide_a_request_of_another_core(ends: str) -> None:
    """A leader that was cut off has sent it to the same server: its slot is foreign, not free."""
    front, first, call = await one_running("a")
    first.die()
    await settle()
    second = FakeCore(1)
    if ends == "after the hello":
        await front.follow(second)
    call.say(envoy.response_headers(body_bytes=10, served=str(sent_to(call))))
    call.reset()
    if ends == "before the hello":
        await front.follow(second)
    await settle()
    [address] = second.rig.fleet.addresses
    second.dispatcher.hold()
    assert second.calls.adopt() == 1
    second.rig.fleet.now += 0.1
    second.rig.fleet.scrape(address, busy=1)
    second.calls.open()
    assert second.leased() == [0]
    assert second.rig.fleet.account(address).foreign_slots == 1
    late = front.ask("late")
    await eventually(lambda: is_held(late))
    assert sent_to(late) is None
    second.rig.fleet.scrape(address, busy=0)
    await eventually(lambda: sent_to(late))


async def test_the_counts_of_a_response_outlive_a_core() -> None:
    """They are told until a core has heard of them, each once."""
    front = FakeFront()
    serve = with_responses(front.table[PROCESS], front.calls.responses, lambda _: True)
    call = HandCall()
    call.metadata = ((USAGE, f"{PREFIX}exchange-1"),)
    call.open(serve)
    body = b'{"usage":{"prompt_tokens":5,"completion_tokens":7}}'
    message = pb.ProcessingRequest()
    message.response_body.body = body
    message.response_body.end_of_stream = True
    call.say(message)
    assert len(front.calls.responses) == 1
    for is_first in (True, False):
        core = FakeCore(1)
        await front.follow(core)
        core.lead()
        await settle()
        read = ("exchange-1", True, 0, False, 5, 7, None, None, None)
        assert core.responses == ([read] if is_first else [])
        assert not len(front.calls.responses)
        core.die()
        await settle()


async def test_a_lease_at_an_unknown_endpoint_is_left_to_the_scrapes() -> None:
    front, first = FakeFront(), FakeCore(1, 1)
    await front.follow(first)
    first.lead()
    calls = [front.ask("a"), front.ask("b")]
    await eventually(lambda: all(map(sent_to, calls)))
    first.die()
    await settle()
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    assert second.leased() == [1]
    for call in calls:
        call.say(envoy.response_headers(served=str(sent_to(call))))
    await eventually(lambda: all(len(call.sent) == 2 for call in calls))


async def test_the_place_of_a_request_outlives_its_front() -> None:
    """Envoy opens its stream at another front; in between a slot stays with those before it."""
    core = FakeCore(1)
    front, other = await two_fronts(core)
    running = other.ask("running")
    await eventually(lambda: sent_to(running))
    lost = front.ask("first")
    await eventually(lambda: is_held(lost))
    later = other.ask("second")
    await eventually(lambda: is_held(later))
    front.die()
    await eventually(lambda: core.queued() == ["second"])
    again = other.ask("first")
    await eventually(lambda: is_held(again))
    assert core.queued() == ["first", "second"]
    assert core.resumption.returning.claimed == 1
    running.say(envoy.response_headers(body_bytes=10, served=str(sent_to(running))))
    await eventually(lambda: sent_to(again))
    assert sent_to(later) is None


async def test_envoy_may_be_faster_than_the_news_that_a_front_is_lost() -> None:
    """What it has opened again by then gets its place when the loss is noticed, also for the next
    core."""
    core = FakeCore(1)
    front, other = await two_fronts(core)
    running = other.ask("running")
    await until_sent(running)
    lost = front.ask("first")
    await until_held(lost)
    for name in ("second", "third"):
        await until_held(other.ask(name))
    again = other.ask("first")
    await until_held(again)
    assert core.queued() == ["first", "second", "third", "first"]
    front.die()
    await eventually(lambda: core.queued() == ["first", "second", "third"])
    assert core.resumption.returning.claimed == 1
    assert not core.dispatcher.faults(core.rig.fleet.now)
    assert len(core.rig.pending_streams) == 3
    await settle()
    core.die()
    await settle()
    second = FakeCore(1)
    await other.follow(second)
    second.lead()
    assert second.queued() == ["first", "second", "third"]
    running.say(envoy.response_headers(body_bytes=10, served=str(sent_to(running))))
    await until_sent(again)
    assert second.queued() == ["second", "third"]


async def test_many_get_back_their_places_in_whatever_order_they_come() -> None:
    core = FakeCore(1, queue_max_requests=MANY)
    front, other = await two_fronts(core)
    await until_sent(other.ask("running"))
    names = [f"q{number}" for number in range(MANY)]
    for name in names:
        front.ask(name)
    await eventually(lambda: len(core.dispatcher.queue) == MANY)
    front.die()
    await eventually(lambda: not len(core.dispatcher.queue))
    for name in Random(1).sample(names, MANY):
        other.ask(name)
    await eventually(lambda: len(core.dispatcher.queue) == MANY)
    assert core.queued() == names
    assert not core.dispatcher.faults(core.rig.fleet.now)


MANY = 1000


async def test_a_request_that_may_not_have_its_place_any_more_is_refused() -> None:
    core = FakeCore(1)
    front, other = await two_fronts(core)
    await until_sent(other.ask("running"))
    await until_held(front.ask("first"))
    again = other.ask("first")
    await until_held(again)
    core.dispatcher._is_closed = True  # the picker stops
    front.die()
    await eventually(lambda: core.queued() == [])
    await eventually(lambda: any(reply.HasField("immediate_response") for reply in again.sent))
    assert len(core.rig.pending_streams) == 0
    assert not core.dispatcher.faults(core.rig.fleet.now)


async def test_a_front_that_stands_still_holds_the_queue_until_it_goes_on_or_is_lost() -> None:
    core = FakeCore(1)
    front, other = await two_fronts(core)
    core.calls.silence("unknown", is_silent=True)
    for ends in ("goes on", "is lost"):
        core.calls.silence("a", is_silent=True)
        call = other.ask(ends)
        await until_held(call)
        if ends == "goes on":
            core.calls.silence("a", is_silent=False)
        else:
            front.die()
            await settle()
            assert sent_to(call) is None, "what it held comes back"
            core.rig.fleet.now += 1.0
        await until_sent(call)
        call.say(envoy.response_headers(body_bytes=10, served=str(sent_to(call))))
    assert not core.dispatcher.faults(core.rig.fleet.now)


async def test_slots_wait_for_those_that_come_back_from_a_lost_front() -> None:
    """New requests do not pass them, and who has left is not waited for for long."""
    core = FakeCore(1)
    front, other = await two_fronts(core)
    running = other.ask("running")
    await eventually(lambda: sent_to(running))
    lost = []
    for name in ("first", "second", "left"):
        call = HandCall()
        call.metadata = ((LONG_WAIT, LONG),)
        call.open(front.table[PROCESS])
        call.say(envoy.request_headers(x_request_id=name))
        lost.append(call)
    await eventually(lambda: core.queued() == ["first", "second", "left"])
    front.die()
    await eventually(lambda: not core.queued())
    running.say(envoy.response_headers(body_bytes=10, served=str(sent_to(running))))
    await eventually(lambda: core.leased() == [0])
    new = other.ask("new")
    second = other.ask("second")
    await eventually(lambda: core.queued() == ["second", "new"])
    first = other.ask("first")
    await eventually(lambda: core.queued() == ["first", "second", "new"])
    assert core.leased() == [0]
    core.rig.fleet.now += 10.0  # of the third there is no more to be heard
    await eventually(lambda: sent_to(first))
    assert sent_to(second) is None and sent_to(new) is None
    assert not core.dispatcher.faults(core.rig.fleet.now)


async def test_a_rejection_that_no_front_heard_is_not_taken_for_given() -> None:
    """Else the call ends without a reply, and Envoy sends the request on without its body."""
    front, first, running = await one_running("running")
    call = front.ask("a")
    await eventually(lambda: is_held(call))
    [ticket] = first.dispatcher.queue
    [link] = first.calls.fronts.values()
    [queued] = [each for each in link.calls.values() if is_queued(first, each)]
    first.dispatcher.cancel(ticket, first.rig.fleet.now, Reason.CANCELLED)
    link.changed(queued)
    link._report()
    first.die()  # before the turn of the loop in which it replies
    await settle()
    assert call.status is None
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    assert second.queued() == ["a"]
    assert sent_to(running)


async def test_who_is_rejected_at_a_takeover_hears_of_it() -> None:
    """By a core that cannot queue it any more, as no endpoint has its model or it ends."""
    front, first, _ = await one_running("running")
    call = front.ask("a")
    await eventually(lambda: is_held(call))
    first.die()
    await settle()
    second = FakeCore(1)
    await front.follow(second)
    second.dispatcher.close(second.rig.fleet.now)
    second.lead()
    await eventually(lambda: [reply for reply in call.sent if reply.HasField("immediate_response")])


async def test_a_response_that_flows_through_a_lost_front_keeps_its_slot() -> None:
    """Until a scrape shows the slot free: Envoy passes the response on without the picker."""
    front, core, call = await one_running("a")
    address = sent_to(call)
    assert address is not None
    call.say(envoy.response_headers(content_type="text/event-stream", served=str(address)))
    await eventually(lambda: all(each.answered_at for each in core.dispatcher.view.leases()))
    front.die()
    await eventually(lambda: core.rig.records)
    [lease] = core.dispatcher.view.leases()
    assert lease.state is LeaseState.DRAINING
    assert core.rig.records[0].outcome is Outcome.SERVED
    fleet = core.rig.fleet
    fleet.now += 1.0
    fleet.scrape(address, busy=1)
    assert core.leased() == [1]
    fleet.now += 1.0
    fleet.scrape(address, busy=0)
    assert core.leased() == [0]


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("has_core", [True, False])
async def test_a_response_whose_envoy_lost_its_front_keeps_its_slot(
    has_core: bool, is_remote: bool
) -> None:
    """The core hears that the call ended, or the next core does: as nobody says how, it drains."""
    front, core = FakeFront(), FakeCore(2)
    await front.follow(core, is_remote=is_remote)
    core.lead()
    calls = [front.ask(name) for name in ("lost", "reset")]
    for call in calls:
        await until_sent(call)
        call.say(
            envoy.response_headers(content_type="text/event-stream", served=str(sent_to(call)))
        )
    await eventually(lambda: all(each.answered_at for each in core.dispatcher.view.leases()))
    if not has_core:
        core.die()
        await settle()
    calls[0].lose()
    calls[1].reset()
    if not has_core:
        core = FakeCore(2)
        await front.follow(core, is_remote=is_remote)
        core.lead()
    await eventually(lambda: len(core.rig.records) == 2)
    leases = list(core.dispatcher.view.leases())
    assert [lease.state for lease in leases] == [LeaseState.DRAINING] * 2


async def test_what_runs_at_a_front_that_stops_drains_too() -> None:
    """Its drain timeout is over: it leaves its core before it ends what is left."""
    front, core, call = await one_running("a")
    call.say(envoy.response_headers(content_type="text/event-stream", served=str(sent_to(call))))
    await eventually(lambda: all(each.answered_at for each in core.dispatcher.view.leases()))
    front.calls.stop()
    call.reset()
    await eventually(lambda: core.rig.records)
    [lease] = core.dispatcher.view.leases()
    assert lease.state is LeaseState.DRAINING


async def test_what_runs_at_a_lost_front_drains() -> None:
    front, core = FakeFront(), FakeCore(1)
    await front.follow(core)
    core.lead()
    call = front.ask("a")
    await eventually(lambda: sent_to(call))
    front.die()
    await eventually(lambda: core.rig.records)
    [lease] = core.dispatcher.view.leases()
    assert lease.state is LeaseState.DRAINING
    core.rig.fleet.scrape(lease.address, busy=0)  # it may be on its way to the server
    assert core.leased() == [1]


async def test_other_calls_are_ended_with_their_core() -> None:
    front, first = FakeFront(), FakeCore(1)
    await front.follow(first)
    first.lead()
    call = HandCall().open(front.table[OTHER])
    call.say(envoy.request_headers())
    await eventually(lambda: first.others)
    first.die()
    await eventually(lambda: call.status)
    assert call.status is not None and call.status[0] == 14  # UNAVAILABLE: it is opened again
    again = HandCall().open(front.table[OTHER])
    again.say(envoy.request_headers())
    second = FakeCore(1)
    await front.follow(second)
    assert not second.others
    second.lead()
    await eventually(lambda: second.others)


async def test_envoy_is_asked_for_patience_while_no_core_answers() -> None:
    """Once for each message, not where its configuration is patient."""
    front = FakeFront()
    front.calls.start()
    impatient, patient = front.ask("a"), HandCall()
    patient.metadata = (("x-coxswain-patience", "long"),)
    patient.open(front.table["/envoy.service.ext_proc.v3.ExternalProcessor/Process"])
    patient.say(envoy.request_headers(x_request_id="b"))
    front.now = 1.0
    await eventually(lambda: is_held(impatient))
    front.now = 2.0
    core = FakeCore(1)
    running = FakeFront("other")
    await running.follow(core)
    await front.follow(core)
    core.lead()
    await eventually(lambda: sent_to(impatient) or sent_to(patient))
    await settle()
    assert len([one for one in impatient.sent if one.HasField("override_message_timeout")]) == 1
    assert not is_held(patient)
    front.calls.stop()


@pytest.mark.parametrize("seed", range(12))
async def test_no_slot_is_lost_or_given_twice_whatever_dies(seed: int) -> None:
    """Requests come, end and leave, cores and fronts die: the books are what Envoy was told."""
    random = Random(seed)
    slots = (1, 2, 2)
    fronts = [FakeFront("front-0"), FakeFront("front-1")]
    core = FakeCore(*slots)
    for front in fronts:
        await front.follow(core)
    core.lead()
    alive: list[tuple[FakeFront, HandCall]] = []
    number = 0
    for _ in range(60):
        step = random.random()
        if step < 0.5:
            number += 1
            front = random.choice(fronts)
            alive.append((front, front.ask(f"r{number}")))
        elif step < 0.8 and alive:
            front, call = alive.pop(random.randrange(len(alive)))
            place = sent_to(call)
            if place is not None:
                call.say(envoy.response_headers(body_bytes=10, served=str(place)))
                await settle()
            call.reset()
        elif step < 0.9:
            core.die()
            await settle()
            core = FakeCore(*slots, now=core.rig.fleet.now)
            for front in random.sample(fronts, len(fronts)):
                await front.follow(core)
            core.lead()
        elif step < 0.93:
            lost = random.randrange(2)
            fronts[lost].die()
            await settle()
            alive = [one for one in alive if one[0] is not fronts[lost]]
            number += 1
            fronts[lost] = FakeFront(f"front-n{number}")
            await fronts[lost].follow(core)
            for _ in range(3):  # two scrapes in a row show what the lost front's servers finished
                core.rig.fleet.now += 1.0
                for address in core.rig.fleet.addresses:
                    account = core.rig.fleet.account(address)
                    open_slots = account.leased_slots - account.draining_slots
                    core.rig.fleet.scrape(address, busy=open_slots)
                core.dispatcher.advance(core.rig.fleet.now)
        await settle()
        counts: dict[str, int] = {}
        for _, call in alive:
            place = sent_to(call)
            if place is not None:
                counts[str(place)] = counts.get(str(place), 0) + 1
        for address, total, leased in zip(
            core.rig.fleet.addresses, slots, core.leased(), strict=True
        ):
            assert counts.get(str(address), 0) <= leased <= total
        waiting = [call for _, call in alive if sent_to(call) is None]
        assert len(waiting) == len(core.queued())
        assert not waiting or core.leased() == list(slots)
        assert not core.dispatcher.faults(core.rig.fleet.now)


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_core_knows_at_which_pools_port_a_request_came(
    is_remote: bool, is_late: bool
) -> None:
    """Also the core after the one that it came to. Here no pool has this name."""
    front, core = FakeFront(), FakeCore(1)
    front.calls.add_to(front.table, (PROCESS,), "night")
    call = None if is_late else front.ask("a")
    await front.follow(core, is_remote=is_remote)
    core.lead()
    call = call or front.ask("a")
    await eventually(lambda: len(call.sent) == 1)
    assert call.sent[0].HasField("immediate_response")
    call.half_close()
    await eventually(lambda: len(core.rig.records) == 1)
    assert (core.rig.records[0].pool, core.rig.records[0].reason) == ("night", Reason.NO_POOL)
