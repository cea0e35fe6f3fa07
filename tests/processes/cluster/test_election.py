"""Claims about cluster/election.py and fronts/lease_grant.py of extproc/processes: whatever is
late, lost, frozen, cut off or forgotten, no front uses a core's replies while another one decides.

Members, fronts, cores and an engine are simulated with one clock, in steps of 10 ms.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from extproc.processes.cluster.election import Election
from extproc.processes.cluster.engine import Beat, Leader, Member, View
from extproc.processes.fronts.lease_grant import PLEDGE_S, LeaseGrant

LEASE_S = 2.0
STEP_S = 0.01
BEAT_S = 0.25
PING_S = 0.25
SEEDS = 200 if os.environ.get("LONG_RUN") else 8


class FakeEngine:
    """What the scripts of the real one do: test_valkey.py holds them to it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.leader: Leader | None = None
        self.held_until = -1.0
        self.is_resigned = False
        self.alive: dict[str, tuple[float, Member]] = {}

    def beat(self, beat: Beat, now: float) -> View:
        self.alive[beat.member.id] = (now + LEASE_S, beat.member)
        self.alive = {key: one for key, one in self.alive.items() if one[0] > now}
        epoch = self.epoch
        holder = None
        if self.held_until > now:
            holder = "" if self.leader is None else self.leader.id
        me = beat.member
        was_mine = self.leader is not None and self.leader.id == me.id
        is_forgotten = beat.epoch > epoch or (beat.epoch == epoch and self.leader is None)
        may_be_next = beat.epoch == epoch or (beat.epoch < epoch and not beat.is_leading)
        is_its_own = (beat.is_leading and beat.epoch == epoch and was_mine) or (
            beat.has_lease and is_forgotten
        )
        if beat.is_candidate and holder == me.id and beat.epoch <= epoch:
            self.held_until = now + LEASE_S
        elif beat.is_candidate and (is_its_own or (holder is None and may_be_next)):
            self.epoch = epoch = beat.epoch if is_its_own else epoch + 1
            is_clean = self.is_resigned and not is_its_own
            self.leader = Leader(
                id=me.id, name=me.name, address=me.address, epoch=epoch, is_clean=is_clean
            )
            self.held_until, self.is_resigned = now + LEASE_S, False
        elif holder == me.id and not beat.is_candidate:
            self.held_until = now
        elif beat.epoch > epoch:
            self.epoch, self.leader, self.held_until = beat.epoch, None, now + LEASE_S
            self.is_resigned = False
        members = tuple(member for _, member in self.alive.values())
        return View(leader=self.leader, is_held=self.held_until > now, members=members)

    def resign(self, member_id: str, now: float) -> None:
        if self.leader is not None and self.leader.id == member_id and self.held_until > now:
            self.held_until, self.is_resigned = now, True


@dataclass
class Front:
    """The front of one member. It follows one core at a time."""

    followed: Leader | None = None
    last: Leader | None = None
    pledged_until: float = 0.0
    decides_until: float = 0.0
    heard_at: float = 0.0


@dataclass
class Machine:
    """A supervisor with its election, a core with its lease_grant, and one front."""

    name: str
    election: Election
    member: Member
    lease_grant: LeaseGrant | None = None
    front: Front = field(default_factory=Front)
    frozen_until: float = 0.0
    next_beat: float = 0.0
    next_ping: float = 0.0


class World:
    """All of it. `cut` are pairs that do not hear each other; the engine is one of them."""

    def __init__(self, seed: int, *, pledges: bool = True) -> None:
        self.random = Random(seed)
        self.pledges = pledges
        self.now = 100.0
        self.engine = FakeEngine()
        self.engine_down_until = 0.0
        self.cut: set[frozenset[str]] = set()
        self.machines = {name: self.machine(name, 0) for name in "abc"}
        self.mail: list[tuple[float, object]] = []
        self.starts = 0
        self.elected = 0

    def machine(self, name: str, start: int) -> Machine:
        member = Member(
            id=f"{name}/{start}", name=name, address=name, fronts=(f"{name}/front-{start}",)
        )
        return Machine(name, Election(LEASE_S), member, next_beat=self.now)

    def reach(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) not in self.cut

    def delay(self) -> float:
        return self.random.choice((0.001, 0.005, 0.05, 0.3))

    def post(self, after_s: float, work: object) -> None:
        self.mail.append((self.now + after_s, work))

    # One turn

    def turn(self) -> None:
        self.now += STEP_S
        due = [work for at, work in self.mail if at <= self.now]
        self.mail = [one for one in self.mail if one[0] > self.now]
        for work in due:
            work()  # type: ignore[operator]
        for machine in list(self.machines.values()):
            if machine.frozen_until <= self.now:
                self.run(machine)

    def run(self, machine: Machine) -> None:
        front = machine.front
        is_silent = self.now - front.heard_at > PLEDGE_S
        if is_silent and front.followed is not None and front.followed.id != machine.member.id:
            front.followed = None
        if self.now >= machine.next_beat:
            machine.next_beat = self.now + 10  # until the answer
            self.send_beat(machine)
        if machine.lease_grant is not None and self.now >= machine.next_ping:
            machine.next_ping = self.now + PING_S
            self.ping(machine)
        self.follow(machine)

    def send_beat(self, machine: Machine) -> None:
        sent_at, election = self.now, machine.election
        follows = machine.front.decides_until > self.now
        beat = election.beat(replace(machine.member, follows=follows), sent_at, can_lead=True)
        is_lost = (
            self.engine_down_until > self.now
            or not self.reach(machine.name, "engine")
            or self.random.random() < 0.03
        )
        if is_lost:
            self.post(0.5, lambda: self.answered(machine, beat, None, sent_at))
            return
        there = self.delay()

        def arrive() -> None:
            view = self.engine.beat(beat, self.now)
            is_late = self.random.random() < 0.03
            answer = None if is_late else view
            back = 0.5 - there if is_late else self.delay()
            self.post(max(0.0, back), lambda: self.answered(machine, beat, answer, sent_at))

        self.post(there, arrive)

    def answered(self, machine: Machine, beat: Beat, view: View | None, sent_at: float) -> None:
        if self.machines.get(machine.name) is not machine:
            return
        if machine.frozen_until > self.now:
            self.post(STEP_S, lambda: self.answered(machine, beat, view, sent_at))
            return
        election, had_led = machine.election, machine.election.is_leading
        term = election.epoch
        if view is None:
            election.failed(sent_at)
        else:
            election.answered(beat, view, sent_at, self.now)
        if not election.is_leading or (had_led and election.epoch != term):
            machine.lease_grant = None  # its core is killed
        if election.is_leading:
            self.elected += not had_led
            if machine.lease_grant is None:
                machine.lease_grant = LeaseGrant()
            fronts = election.fronts_of_others(machine.member.id, self.now)
            machine.lease_grant.renew(
                election.permitted_until,
                election.followed_until,
                fronts if self.pledges else frozenset(),
            )
        is_calm = election.is_leading or machine.front.decides_until > self.now
        machine.next_beat = self.now + (BEAT_S if is_calm else 0.05)

    def ping(self, leader: Machine) -> None:
        lease_grant, sent_at = leader.lease_grant, self.now
        assert lease_grant is not None
        is_deciding = lease_grant.is_given(self.now)

        def arrive(machine: Machine) -> None:
            front = machine.front
            if machine.frozen_until > self.now:
                self.post(STEP_S, lambda: arrive(machine))
                return
            if front.followed is None or front.followed.id != leader.member.id:
                return
            if self.now - front.heard_at > PLEDGE_S:
                front.followed = None  # what is read may be old
                return
            front.heard_at = self.now
            front.pledged_until = self.now + PLEDGE_S
            if is_deciding:
                front.decides_until = self.now + PLEDGE_S
            [name] = machine.member.fronts

            def back() -> None:
                if leader.lease_grant is lease_grant and leader.frozen_until <= self.now:
                    lease_grant.pledged(name, sent_at)

            if self.reach(machine.name, leader.name):
                self.post(self.delay(), back)

        for machine in self.machines.values():
            if machine is not leader and self.reach(machine.name, leader.name):
                self.post(self.delay(), lambda machine=machine: arrive(machine))

    def follow(self, machine: Machine) -> None:
        """The supervisor's orders to the front."""
        front, leader = machine.front, machine.election.leader
        if leader is None:
            return
        if (
            front.followed is not None
            and front.followed != leader
            and front.followed.id != leader.id
        ):
            front.followed, front.decides_until = None, 0.0
        if front.followed is not None:
            return
        if front.last is not None:
            is_same = (front.last.id, front.last.epoch) == (leader.id, leader.epoch)
            is_clean = leader.is_clean and front.last.epoch == leader.epoch - 1
            if not is_same and not is_clean and self.now < front.pledged_until:
                return
        core = next((one for one in self.machines.values() if one.member.id == leader.id), None)
        if core is None or core.lease_grant is None or core.frozen_until > self.now:
            return
        if core.election.epoch != leader.epoch or not self.reach(machine.name, core.name):
            return
        front.followed = front.last = leader
        front.heard_at = self.now

    # Faults

    def fault(self) -> None:
        random = self.random
        name = random.choice("abc")
        machine = self.machines[name]
        kind = random.random()
        if kind < 0.25:
            machine.frozen_until = self.now + random.choice((0.3, 1.2, 3.0, 6.0))
        elif kind < 0.4:
            self.restart(name)  # all of it died
        elif kind < 0.5:
            if machine.election.is_leading and machine.frozen_until <= self.now:
                machine.lease_grant = None
                machine.election.resign()
                self.engine.resign(machine.member.id, self.now)
                self.post(random.choice((0.5, 2.0)), lambda: self.restart(name, machine))
        elif kind < 0.6:
            self.engine_down_until = self.now + random.choice((0.5, 3.0, 8.0))
        elif kind < 0.65:
            self.engine_down_until = self.now + 0.3
            self.engine = FakeEngine()  # it has forgotten everything
        elif kind < 0.8:
            self.isolate(name, random.choice((0.5, 3.0, 8.0)))
        elif kind < 0.9:
            pair = frozenset(random.sample([*"abc", "engine"], 2))
            self.cut.add(pair)
            self.post(random.choice((0.5, 2.0, 5.0)), lambda: self.cut.discard(pair))

    def restart(self, name: str, old: Machine | None = None) -> None:
        """Begin anew, in place of `old` if it is still there."""
        if old is None or self.machines[name] is old:
            self.starts += 1
            self.machines[name] = self.machine(name, self.starts)

    def isolate(self, name: str, for_s: float) -> None:
        """It reaches neither the engine nor the other machines."""
        pairs = [frozenset((name, other)) for other in (*"abc", "engine") if other != name]
        for pair in pairs:
            self.cut.add(pair)
        self.post(for_s, lambda: self.cut.difference_update(pairs))

    # What must hold

    def deciding_and_used(self) -> set[str]:
        """The cores that decide and whose replies a front would use now."""
        found = set()
        for machine in self.machines.values():
            front = machine.front
            if machine.frozen_until > self.now or front.followed is None:
                continue
            leader = next(
                (one for one in self.machines.values() if one.member.id == front.followed.id), None
            )
            if leader is None or leader.lease_grant is None or leader.frozen_until > self.now:
                continue
            if leader.lease_grant.is_given(self.now):
                found.add(leader.member.id)
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_cores_never_decide_for_fronts_at_once(seed: int) -> None:
    world = World(seed)
    served = 0
    for step in range(6000):
        if step % 100 == 99 and step < 5000 and world.random.random() < 0.5:
            world.fault()
        world.turn()
        used = world.deciding_and_used()
        assert len(used) <= 1, (world.now, used)
        served += bool(used)
    assert served > 1000, "somebody leads most of the time"
    assert world.elected >= 1
    for _ in range(12_000):  # one beat in twenty is lost, so an election takes its time
        if len(world.deciding_and_used()) == 1:
            return
        world.turn()
    raise AssertionError("the faults are over, and nobody leads")


def test_the_simulation_finds_what_pledges_prevent() -> None:
    """The control: a leader that does not count them decides beside another one."""
    found = 0
    for seed in range(60):
        world = World(seed, pledges=False)
        for step in range(5000):
            if step % 100 == 99 and world.random.random() < 0.5:
                world.fault()
            world.turn()
            found += len(world.deciding_and_used()) > 1
        if found:
            return
    raise AssertionError("nothing was found")


def member(name: str) -> Member:
    return Member(id=name, name=name, address=name)


def view(leader: str, epoch: int, *, is_held: bool = True) -> View:
    found = Leader(id=leader, name=leader, address=leader, epoch=epoch)
    members = (member("a"), member("b"))
    return View(leader=found, is_held=is_held, members=members)


def asked(election: Election, now: float, *, follows: bool = False) -> Beat:
    return election.beat(replace(member("a"), follows=follows), now, can_lead=True)


NOBODY = View(leader=None, is_held=False, members=())


def test_a_member_stands_only_after_it_was_in_touch_for_a_lease() -> None:
    election = Election(LEASE_S)
    for now in (0.0, 0.5, 1.0, 1.5):
        beat = asked(election, now)
        assert not beat.is_candidate
        election.answered(beat, NOBODY, now, now + 0.01)
    election.failed(2.0)
    assert not asked(election, 2.5).is_candidate
    election.answered(asked(election, 2.5), NOBODY, 2.5, 2.51)
    for now in (3.0, 3.5, 4.0, 4.5):
        beat = asked(election, now)
        assert not beat.is_candidate
        election.answered(beat, NOBODY, now, now)
    assert asked(election, 4.6).is_candidate
    assert not asked(election, 4.6, follows=True).is_candidate
    assert not asked(election, 9.0).is_candidate, "it stood still"


def leading(*, stays: bool = False) -> Election:
    election = Election(LEASE_S, stays)
    for now in (7.5, 8.0, 8.5, 9.0, 9.5):
        election.answered(asked(election, now), NOBODY, now, now)
    beat = asked(election, 10.0)
    assert beat.is_candidate
    election.answered(beat, view("a", 4), 10.0, 10.3)
    return election


def test_a_leader_counts_its_lease_from_when_it_asked() -> None:
    election = leading()
    assert election.is_leading
    assert election.permitted_until == pytest.approx(11.7)
    assert election.epoch == 4


@pytest.mark.parametrize("stays", [False, True])
def test_a_lost_engine_extends_what_the_settings_say(stays: bool) -> None:
    election = leading(stays=stays)
    election.failed(11.0)
    assert election.is_leading
    assert election.permitted_until == pytest.approx(12.7 if stays else 11.7)
    assert election.followed_until == pytest.approx(12.7)


def test_a_leader_that_fronts_follow_goes_on_without_its_lease() -> None:
    """It says which of the two it is: only a lease shows that nobody else has led since."""
    election = leading()
    beat = asked(election, 11.0)
    assert (beat.is_candidate, beat.is_leading, beat.has_lease) == (True, True, True)
    election.failed(11.0)
    beat = asked(election, 12.0)
    assert (beat.is_candidate, beat.is_leading, beat.has_lease) == (True, True, False)
    beat = asked(election, 12.8)
    assert (beat.is_candidate, beat.is_leading, beat.has_lease) == (False, False, False)


def test_a_later_epoch_deposes_a_leader_and_an_earlier_one_does_not() -> None:
    election = leading()
    found = []
    for epoch in (3, 5):
        election.answered(asked(election, 11.0), view("b", epoch), 11.0, 11.0)
        assert election.leader is not None
        found.append((election.is_leading, election.leader.name))
    assert found == [(True, "a"), (False, "b")]


def test_a_leader_without_a_core_does_not_lead() -> None:
    election = leading()
    beat = election.beat(member("a"), 11.0, can_lead=False)
    assert not beat.is_candidate
    election.answered(beat, view("a", 4, is_held=False), 11.0, 11.0)
    assert not election.is_leading


def test_who_has_resigned_leads_never_again() -> None:
    """Nor by the answer to a beat that was sent before."""
    engine, election = FakeEngine(), Election(LEASE_S)
    member = Member(id="a/1", name="a", address="10.0.0.1:9004", fronts=())
    for now in (0.0, 0.9, 1.8, 2.7):
        beat = election.beat(member, now, can_lead=True)
        election.answered(beat, engine.beat(beat, now), now, now)
    led = election.is_leading
    beat = election.beat(member, 3.0, can_lead=True)
    view = engine.beat(beat, 3.0)
    election.resign()
    election.answered(beat, view, 3.0, 3.1)
    assert (led, election.is_leading) == (True, False)
    assert not election.beat(member, 3.2, can_lead=True).is_candidate
