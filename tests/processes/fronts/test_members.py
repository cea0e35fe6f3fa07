"""Claims about extproc/processes/fronts in a cluster: a core that was replaced without its
knowledge is never heard, and what stands still is left."""

from __future__ import annotations

import pytest

from extproc.processes.fronts import frames
from extproc.processes.fronts.core_calls import PAUSED_S
from extproc.processes.fronts.lease_grant import PLEDGE_S, LeaseGrant
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import FakeCore, FakeFront, sent_to, settle

PATIENCE_S = 10.0
UNAVAILABLE = 14


def permitted(until: float, followed_until: float = 0.0, *fronts: str) -> LeaseGrant:
    lease_grant = LeaseGrant()
    lease_grant.renew(until, followed_until, frozenset(fronts))
    return lease_grant


def start_at(front: FakeFront, now: float) -> None:
    """Its clock has no origin in common with others."""
    front.now = front.calls._ticked_at = now


def tick(front: FakeFront) -> None:
    front.calls._check_cluster(PATIENCE_S)


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_core_without_permission_says_nothing_and_hears_nothing(is_remote: bool) -> None:
    """It was frozen, say, and another one may lead. With the permission it goes on where it was."""
    lease_grant = permitted(110.0)
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1, lease_grant=lease_grant)
    await front.follow(core, is_remote=is_remote)
    core.lead()
    running = front.ask("running")
    await eventually(lambda: sent_to(running))
    queued = front.ask("queued")
    await eventually(lambda: queued.sent)
    core.rig.fleet.now = 110.0
    late = front.ask("late")
    running.say(envoy.response_headers(body_bytes=10, served=str(sent_to(running))))
    await settle()
    assert core.queued() == ["queued"], "nothing was heard"
    core.rig.fleet.scrape(core.rig.fleet.addresses[0], busy=0)
    await settle()
    assert len(queued.sent) == 1, "nothing was sent"
    lease_grant.renew(120.0, 0.0, frozenset())
    core.calls.tick()
    await eventually(lambda: sent_to(queued))
    assert core.queued() == ["late"]
    assert late.sent


async def test_what_fronts_said_without_permission_is_heard_in_the_order_of_arrival() -> None:
    """Also what is said when there is a permission again, before the next tick."""
    lease_grant = permitted(110.0)
    front, other = FakeFront("a", PATIENCE_S), FakeFront("b", PATIENCE_S)
    core = FakeCore(1, lease_grant=lease_grant)
    for each in (front, other):
        start_at(each, 100.0)
        await each.follow(core)
    core.lead()
    running = front.ask("running")
    await eventually(lambda: sent_to(running))
    core.rig.fleet.now = 110.0
    asked = []
    for number, at in enumerate((other, front, front, other, front)):
        if number == 4:
            lease_grant.renew(120.0, 0.0, frozenset())
        front.now = other.now = 100.1 + number / 10
        asked.append(at.ask(f"q{number}"))
        await settle()
    await eventually(lambda: all(call.sent for call in asked))
    assert core.queued() == [f"q{number}" for number in range(5)]


async def test_a_deposed_core_is_not_heard_by_a_front_that_follows_another() -> None:
    first, second = FakeCore(1), FakeCore(1)
    front = FakeFront(patience_s=PATIENCE_S)
    await front.follow(first, is_remote=True)
    first.lead()
    running = front.ask("running")
    await eventually(lambda: sent_to(running))
    queued = front.ask("queued")
    await eventually(lambda: queued.sent)
    old = front.link
    await front.follow(second, is_remote=True)
    second.lead()
    await settle()
    assert old is not None
    said = len(queued.sent)
    front.calls.heard(old, [(frames.REPLIES, 2, 1, False, None, [b""])])
    front.calls.heard(old, [(frames.FINISH, 2, 0, "")])
    assert len(queued.sent) == said
    assert queued.status is None
    assert second.queued() == ["queued"]
    assert second.leased() == [1]
    assert sent_to(queued) is None


async def test_the_order_of_the_queue_outlives_clocks_that_have_nothing_in_common() -> None:
    front, other = FakeFront("a", PATIENCE_S), FakeFront("b", PATIENCE_S)
    start_at(front, 5.0)
    start_at(other, 90_000.0)
    first = FakeCore(1)
    await front.follow(first)
    await other.follow(first, is_remote=True)
    first.lead()
    running = front.ask("running")
    await eventually(lambda: sent_to(running))
    queued = []
    for number in range(4):
        queued.append((front, other)[number % 2].ask(f"q{number}"))
        await eventually(lambda: queued[-1].sent)
    first.die()
    await settle()
    second = FakeCore(1, now=777.0)
    await other.follow(second)
    await front.follow(second, is_remote=True)
    assert second.lead(epoch=7) == 4
    assert second.queued() == ["q0", "q1", "q2", "q3"]
    assert second.leased() == [1]
    new = other.ask("new")
    await eventually(lambda: new.sent)
    [*_, last] = second.dispatcher.queue
    assert last.id > 7 << 44, "tickets of a later epoch are behind those of earlier ones"


@pytest.mark.parametrize("has_queued", [True, False])
async def test_places_outlive_the_machine_of_a_leader_and_its_fronts(has_queued: bool) -> None:
    """Envoy opens the streams of its fronts again at those of the next leader, and says when the
    requests arrived. No slot is assigned before they have their places."""
    front, other = FakeFront("a", PATIENCE_S), FakeFront("b", PATIENCE_S)
    first = FakeCore(1)
    start_at(front, first.rig.fleet.now)
    start_at(other, 90_000.0)
    clocks = (front, other, first.rig.fleet)
    await front.follow(first)
    await other.follow(first, is_remote=True)
    first.lead(epoch=6)
    running = other.ask("running")
    await eventually(lambda: sent_to(running))
    arrived_at = {}
    for number, name in enumerate(("a0", "b0", "a1", "b1")):
        for clock in clocks:
            clock.now += 0.1
        arrived_at[name] = other.now
        if name in ("a0", "a1") or has_queued:
            call = (front, other)[number % 2].ask(name)
            await eventually(lambda: call.sent)  # noqa: B023 - it is awaited here
    first.die()
    front.die()
    await settle()
    for clock in clocks:
        clock.now += 3.0
    tick(other)
    again = [other.ask(name, arrived_at=arrived_at[name]) for name in ("a1", "a0")]
    new = other.ask("new", arrived_at=other.now)
    await settle()
    second = FakeCore(1, now=other.now)
    await other.follow(second)
    second.lead(epoch=7, is_successor=True)
    names = ["a0", "b0", "a1", "b1", "new"]
    expected = [name for name in names if has_queued or name not in ("b0", "b1")]
    await settle()
    assert second.queued() == expected
    assert second.resumption.returning.late >= 2
    assert all(not call.sent and call.status is None for call in (*again, new))
    assert not second.dispatcher.faults(second.rig.fleet.now)


async def test_what_arrives_after_a_pause_is_not_believed() -> None:
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1)
    await front.follow(core)
    core.lead()
    tick(front)
    front.now += PLEDGE_S + 0.1
    call = front.ask("a")
    await settle()
    assert not call.sent
    assert front.link is not None
    assert not front.link.is_open
    second = FakeCore(1)
    tick(front)
    await front.follow(second)
    second.lead()
    await eventually(lambda: sent_to(call))
    assert core.leased() == [1], "its decision was never used"


async def test_a_silent_core_of_another_machine_is_left() -> None:
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1)
    await front.follow(core, is_remote=True)
    core.lead()
    await settle()
    tick(front)
    assert front.link is not None
    assert front.link.is_open
    front.link.heard_at -= PLEDGE_S + 0.1
    tick(front)
    await eventually(lambda: front.link is not None and not front.link.is_open)


async def test_a_front_that_answers_a_ping_has_pledged_to_follow() -> None:
    lease_grant = permitted(101.0, 200.0, "front")
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1, lease_grant=lease_grant)
    await front.follow(core, is_remote=True)
    core.lead()
    core.rig.fleet.now = 102.0
    assert not core.calls.may_decide()
    start_at(front, 3.0)
    core.calls.tick()
    await eventually(core.calls.may_decide)
    assert front.calls.pledged_until == 3.0 + PLEDGE_S
    assert front.calls.decides_until == 0.0, "it could not decide when it asked"
    core.calls.tick()
    await eventually(lambda: front.calls.decides_until == 3.0 + PLEDGE_S)
    core.rig.fleet.now = 102.0 + PLEDGE_S
    assert not core.calls.may_decide()


async def test_a_silent_front_is_left_unless_it_was_this_process_that_stood_still() -> None:
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1)
    await front.follow(core, is_remote=True)
    core.lead()
    [there] = core.links
    there.heard_at -= 100
    core.rig.fleet.now += PAUSED_S + 0.1
    core.calls.tick()
    await settle()
    assert there.is_open
    there.heard_at -= 100
    core.calls.tick()
    await eventually(lambda: not there.is_open)


async def test_a_front_that_connects_again_replaces_its_old_link() -> None:
    """The old one may hang for long, and its requests must not be there twice."""
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(2)
    await front.follow(core, is_remote=True)
    core.lead()
    calls = [front.ask("a"), front.ask("b")]
    await eventually(lambda: all(map(sent_to, calls)))
    queued = front.ask("c")
    await eventually(lambda: queued.sent)
    [old] = core.calls.fronts
    core.calls.replace(type(old)(core.calls, old._loop, old.name, frames.Codec()))
    await eventually(lambda: not old.is_open)
    assert core.queued() == []
    assert len(core.calls) == 0


async def test_without_a_leader_clients_are_sent_elsewhere_after_a_while() -> None:
    front, core = FakeFront(patience_s=PATIENCE_S), FakeCore(1)
    given_up = []
    front.calls.on_given_up = lambda: given_up.append(front.now)
    await front.follow(core)
    core.lead()
    running = front.ask("running")
    await eventually(lambda: sent_to(running))
    queued = front.ask("queued")
    await eventually(lambda: queued.sent)
    core.die()
    await settle()
    front.now = PATIENCE_S
    tick(front)
    assert not given_up
    front.now += 0.1
    tick(front)
    assert given_up == [front.now]
    assert queued.status is not None and queued.status[0] == UNAVAILABLE
    assert running.status is None, "it runs, and the next core continues it"
    new = front.ask("new")
    assert new.status is not None and new.status[0] == UNAVAILABLE
    second = FakeCore(1)
    await front.follow(second)
    second.lead()
    await settle()
    assert second.leased() == [1]
    last = front.ask("last")
    await eventually(lambda: last.sent)
    assert second.queued() == ["last"]
