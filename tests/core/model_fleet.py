"""A fleet of model servers that knows the truth, against which the dispatcher's books are held.

Time is virtual. A request that was picked reaches its server a moment later, runs until it is
finished, and keeps its slots for a while after its client left. Looks take time, and see the
truth at one moment between question and answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from extproc.core.account import IN_FLIGHT_S
from extproc.core.address import Address
from extproc.core.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.endpoint import EndpointSpec
from extproc.core.lease import Lease, LeaseEnd, LeaseState
from extproc.core.ledger import DrainingCaps
from extproc.core.observation import Observation, Sight
from extproc.core.outcome import Picked, Queued, Rejected, Settlement
from extproc.core.queue import Ticket
from extproc.core.request import Request

LONGEST_STEP_S = 0.4


@dataclass
class Server:
    """What really happens at one address."""

    address: Address
    slots: int
    foreign: int = 0
    arrivals: dict[int, float] = field(default_factory=dict)  # by lease id
    leases: dict[int, Lease] = field(default_factory=dict)
    lingering: list[tuple[float, int]] = field(default_factory=list)  # until, weight

    def busy_ours(self, now: float) -> int:
        running = sum(
            lease.weight_slots
            for lease in self.leases.values()
            if self.arrivals[lease.id] <= now and lease.state is LeaseState.OPEN
        )
        return running + sum(weight for until, weight in self.lingering if until > now)

    def busy(self, now: float) -> int:
        return min(self.slots, self.busy_ours(now) + self.foreign)


@dataclass
class Look:
    address: Address
    began_at: float
    busy: int | None = None


class ModelFleet:
    """Drives a dispatcher with random events and checks every claim after each."""

    def __init__(self, random: Random, *, with_strangers: bool, max_queued: int = 50) -> None:
        self.random = random
        self.with_strangers = with_strangers
        self.now = 100.0
        self.servers: dict[Address, Server] = {}
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Lease] = {}
        self.looks: list[Look] = []
        self.alarm: float | None = None
        self.ended: dict[str, int] = {}
        self.dispatcher = Dispatcher(
            self,
            random,
            DispatcherOptions(
                max_queued=max_queued,
                draining_caps=DrainingCaps(sighted_s=1e6, blind_s=1e6),
                stale_after_s=5.0,
            ),
        )
        self._requests = 0

    # The listener's side

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def wake_at(self, when: float) -> None:
        self.alarm = when if self.alarm is None else min(self.alarm, when)

    def membership_changed(self) -> None:
        self.dispatcher.fleet.membership()

    def unsure_of(self, address: Address) -> None:
        assert address in self.servers

    # Events

    def step(self) -> None:
        """One random event, then every claim."""
        self.now += self.random.expovariate(50.0)
        if self.alarm is not None and self.alarm <= self.now:
            self.alarm = None
            self.dispatcher.advance(self.now)
        events = [
            (self.submit, 30),
            (self.finish, 22),
            (self.leave_running, 4),
            (self.leave_waiting, 3),
            (self.begin_look, 15),
            (self.see, 15),
            (self.answer_look, 15),
            (self.fail_look, 1),
            (self.change_fleet, 1),
        ]
        if self.with_strangers:
            events.append((self.change_strangers, 6))
        event = self.random.choices([e for e, _ in events], [w for _, w in events])[0]
        event()
        self.check()

    def submit(self) -> None:
        self._requests += 1
        request = Request(
            id=str(self._requests),
            timeout_s=self.random.choice([0.0, 0.5, 3.0]),
            weight_slots=self.random.choices([1, 2, 5], [90, 8, 2])[0],
        )
        outcome = self.dispatcher.submit(request, self.now)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
        else:
            self._take(request, outcome)

    def _take(self, request: Request, settlement: Settlement) -> None:
        assert request.id not in self.ended, "a request is settled once"
        self.ended[request.id] = 1
        if isinstance(settlement, Rejected):
            return
        assert isinstance(settlement, Picked)
        lease = settlement.lease
        server = self.servers[lease.address]
        ours = sum(other.weight_slots for other in server.leases.values())
        assert ours + lease.weight_slots <= server.slots, "over its slots through us"
        server.leases[lease.id] = lease
        server.arrivals[lease.id] = self.now + self.random.uniform(0, IN_FLIGHT_S * 0.99)
        self.running[lease.id] = lease

    def finish(self) -> None:
        self._end(LeaseEnd.SERVED)

    def leave_running(self) -> None:
        self._end(LeaseEnd.ABANDONED)

    def _end(self, end: LeaseEnd) -> None:
        arrived = [
            lease
            for lease in self.running.values()
            if self.servers[lease.address].arrivals[lease.id] <= self.now
        ]
        if not arrived:
            return
        lease = self.random.choice(arrived)
        del self.running[lease.id]
        server = self.servers[lease.address]
        del server.leases[lease.id]
        if end is LeaseEnd.ABANDONED:
            until = self.now + self.random.uniform(0, LONGEST_STEP_S)
            server.lingering.append((until, lease.weight_slots))
        self.dispatcher.release(lease, end, self.now)

    def leave_waiting(self) -> None:
        if self.waiting:
            ticket = self.waiting.pop(self.random.choice(list(self.waiting)))
            self.dispatcher.withdraw(ticket, self.now)
            self.dispatcher.withdraw(ticket, self.now)

    def begin_look(self) -> None:
        if self.servers and len(self.looks) < 4:
            address = self.random.choice(list(self.servers))
            self.looks.append(Look(address, self.now))

    def see(self) -> None:
        for look in self.looks:
            if look.busy is None and self.random.random() < 0.5:
                look.busy = self.servers[look.address].busy(self.now)

    def answer_look(self) -> None:
        seen = [look for look in self.looks if look.busy is not None]
        if seen:
            look = self.random.choice(seen)
            self.looks.remove(look)
            self._tell(look.address, look.began_at, look.busy)

    def fail_look(self) -> None:
        if self.servers:
            address = self.random.choice(list(self.servers))
            sight = self.random.choice([Sight.FAILED, Sight.UNREACHABLE, Sight.LOADING])
            self.dispatcher.observe(
                Observation(address=address, began_at=self.now, answered_at=self.now, sight=sight),
                self.now,
            )

    def _tell(self, address: Address, began_at: float, busy: int | None) -> None:
        server = self.servers[address]
        self.dispatcher.observe(
            Observation(
                address=address,
                began_at=began_at,
                answered_at=self.now,
                sight=Sight.READY,
                slots=server.slots,
                busy_slots=busy,
            ),
            self.now,
        )

    def change_fleet(self) -> None:
        """Name some of eight addresses; a server that is named again starts with its slots."""
        pool = [Address("10.0.0.1", 8000 + index) for index in range(8)]
        named = self.random.sample(pool, self.random.randint(1, 8))
        for address in named:
            self.servers.setdefault(address, Server(address, self.random.choice([1, 2, 4, 8])))
        specs = [EndpointSpec(address=address) for address in named]
        self.dispatcher.set_members("test", specs, self.now)

    def change_strangers(self) -> None:
        if self.servers:
            server = self.random.choice(list(self.servers.values()))
            server.foreign = self.random.choice([0, 0, 1, server.slots])

    # Claims

    def check(self) -> None:
        dispatcher = self.dispatcher
        ranked = 0
        for endpoint in dispatcher.fleet:
            account = dispatcher.ledger.account(endpoint.address)
            server = self.servers[endpoint.address]
            assert account.leased_slots == sum(x.weight_slots for x in account.leases.values())
            assert account.leased_slots >= 0 and account.foreign_slots >= 0
            assert account.free_slots >= 0
            ranked += endpoint.is_pickable and account.slots > 0
            if not self.with_strangers:
                assert account.foreign_slots == 0, "all traffic is ours"
                assert server.busy_ours(self.now) <= server.slots, "a full server was bothered"
            head = dispatcher.line.head()
            if head is not None and endpoint.is_pickable:
                fits = dispatcher.ledger.fits(account, head.request.weight_slots)
                assert not fits, "idle while the head of the line waits"
        assert {ticket.id for ticket in dispatcher.line} == set(self.waiting)
        wakeup = dispatcher.next_wakeup()
        if wakeup is not None:
            assert self.alarm is not None and self.alarm <= wakeup, "a lost wake-up"
        for ticket in self.waiting.values():
            assert ticket.deadline > self.now or (self.alarm or 0) <= self.now

    def finish_all(self) -> None:
        """Let everything end: no lease may be left."""
        self.looks.clear()
        for server in self.servers.values():
            server.foreign = 0
        while self.running or self.waiting:
            self.now += 1.0
            self.finish()
            if self.alarm is not None and self.alarm <= self.now:
                self.alarm = None
                self.dispatcher.advance(self.now)
        self.now += LONGEST_STEP_S + 1
        for endpoint in list(self.dispatcher.fleet):
            self._tell(endpoint.address, self.now, 0)
        for endpoint in self.dispatcher.fleet:
            account = self.dispatcher.ledger.account(endpoint.address)
            assert account.leases == {} and account.leased_slots == 0
            assert account.foreign_slots == 0
            assert not endpoint.is_removed
        assert len(self.ended) <= self._requests
