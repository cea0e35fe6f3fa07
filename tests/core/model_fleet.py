"""A fleet of model servers with the true state, to which the dispatcher's state is compared.

Time is virtual. A request that was picked reaches its server a moment later, also if its client
has left; a long upload much later, or never. It runs until it is finished, of which we are notified
a moment later, and uses its slots for a while after its client left. Scrapes take time, overtake
each other, and see the true state at one moment between request and response, except for the last
arrivals.

Three worlds, each stricter than the previous one:
  QUIET      all traffic is ours: no slot ever looks foreign, no full server gets a request.
  FOREIGN    foreign requests use the servers too.
  ACCIDENTS  servers restart with other slots, Envoy uses other servers, connections fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum, auto
from random import Random

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Queued, Settlement
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec, Intent
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Kind, Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.draining_evidence import ARRIVAL_S, RELEASE_S
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.ledger import DrainingCaps
from extproc.core.slots.model_pools import slot_pool
from extproc.core.views.explain import explain
from tests.core.model_server import ModelScrape, ModelServer
from tests.fakes.core_events import listen

LONGEST_STEP_S = 0.4
CAPS = DrainingCaps(reported_s=3.0, blind_s=ARRIVAL_S + LONGEST_STEP_S)
"""Longer than any transit to a server and any step there, so that a cap never frees a slot that is
still in use."""
POOL = [Address("10.0.0.1", 8000 + index) for index in range(8)]


class World(Enum):
    QUIET = auto()
    FOREIGN = auto()
    ACCIDENTS = auto()


class ModelFleet:
    """Drives a dispatcher with random events and checks every claim after each."""

    events_per_s = 50.0

    def __init__(
        self,
        random: Random,
        world: World,
        *,
        queue_max_requests: int = 50,
        order: QueueOrder = ARRIVAL_ORDER,
    ) -> None:
        self.order = order
        self.random = random
        self.world = world
        self.now = 100.0
        self.servers: dict[Address, ModelServer] = {}
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Lease] = {}
        self.ended: list[tuple[float, int, Lease]] = []
        """Served, and in transit to us: by the time at which we are notified."""
        self.held_slot_s = self.used_slot_s = 0.0
        """The slots that the dispatcher did not use, and how many of them were in use or in
        transit."""
        self.scrapes: list[ModelScrape] = []
        self.given_up: set[Address] = set()
        self.wake_up_at: float | None = None
        self.settled_ids: set[str] = set()
        self.reserved_since: dict[int, float] = {}
        """By ticket, since when it has a reservation, wherever that is."""
        self.withdrawn_ids: set[str] = set()
        self.requests = 0
        self.dispatcher = listen(
            Dispatcher(
                random,
                DispatcherOptions(
                    queue=QueueLimits(max_requests=queue_max_requests),
                    draining_caps=CAPS,
                    health=HealthOptions(stale_after_s=2.0),
                    order=order,
                ),
            ),
            self,
        )
        self.dispatcher.state.sessions.served("old", Address("10.0.0.2", 8000), None)
        events = {
            self.submit: 30,
            self.answer: 12,
            self.finish: 22,
            self.leave_running: 4,
            self.leave_waiting: 2,
            self.cancel_waiting: 1,
            self.begin_scrape: 15,
            self.see: 15,
            self.answer_scrape: 15,
            self.fail_scrape: 1,
            self.change_fleet: 1,
            self.change_intent: 1,
            self.change_routable: 1,
        }
        if world is not World.QUIET:
            events[self.change_foreign] = 6
        if world is World.ACCIDENTS:
            events |= {self.restart: 1, self.serve_elsewhere: 3, self.fail_to_connect: 1}
        self._events, self._weights = list(events), list(events.values())

    # The listener's side

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        if isinstance(settlement, Picked):
            earlier = [one for id_, one in self.waiting.items() if id_ < ticket.id]
            # Slots may have been reserved for it while it might still pass the others.
            is_started_first = self.order.is_started_first
            since = self.reserved_since.get(ticket.id, self.now) if is_started_first else self.now
            self._check_bypassed([one for one in earlier if not self._may_be_passed(one, since)])
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def wake_at(self, when: float) -> None:
        self.wake_up_at = when if self.wake_up_at is None else min(self.wake_up_at, when)

    def membership_changed(self) -> None:
        self.dispatcher.fleet.membership()

    def unsure_of(self, address: Address) -> None:
        assert address in self.servers

    # Events

    def step(self) -> None:
        """One random event, then every claim."""
        self._pass(self.random.expovariate(self.events_per_s))
        self.random.choices(self._events, self._weights)[0]()
        self.check()

    def _pass(self, seconds: float) -> None:
        """Let time pass; whatever is due happens at its time, in order."""
        until = self.now + seconds
        while True:
            notified_at = self.ended[0][0] if self.ended else until
            wakes_at = until if self.wake_up_at is None else max(self.now, self.wake_up_at)
            if min(notified_at, wakes_at) >= until:
                break
            self._measure(min(notified_at, wakes_at) - self.now)
            self.now = min(notified_at, wakes_at)
            if notified_at <= wakes_at:
                self._notify()
            else:
                self._wake()
            self.check()
        self._measure(until - self.now)
        self.now = until

    def _measure(self, seconds: float) -> None:
        """How many of the slots that the dispatcher holds back are in use."""
        for endpoint in self.dispatcher.fleet:
            server = self.servers[endpoint.address]
            if not server.is_blind:
                held = (
                    server.slots
                    - self.dispatcher.ledger.endpoint_slots(endpoint.address).free_slots
                )
                used = min(held, server.busy(self.now) + server.coming(self.now))
                self.held_slot_s += held * seconds
                self.used_slot_s += used * seconds

    def _notify(self) -> None:
        lease = heapq.heappop(self.ended)[2]
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    def _wake(self) -> None:
        self.wake_up_at = None
        self.dispatcher.advance(self.now)
        self.given_up |= {a for a in self._members() if self._foreign(a)}

    def submit(self) -> None:
        self.requests += 1
        request = Request(
            id=str(self.requests),
            timeout_s=self.random.choice([0.0, 0.5, 3.0]),
            weight_slots=self.random.choices([1, 2, 5], [90, 8, 2])[0],
            is_uploading=self.random.random() < 0.1,
            traits=self.random.choice(("/a", "/b", "/c")) if self.order.is_by_size else "",
            # Embeddings change no session: nothing waits for the server that has it.
            kind=Kind.EMBEDDING if self.order.is_started_first else Kind.GENERATION,
            session_id=self.random.choice(("old", "new")) if self.order.is_started_first else None,
        )
        outcome = self._submit(request)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
            return
        if isinstance(outcome, Picked):
            self._check_bypassed(list(self.waiting.values()))
        self._take(request, outcome)

    def _submit(self, request: Request) -> Decision:
        """Submit it; the result must equal the preview of the moment before."""
        if self.random.random() > 0.2:
            return self.dispatcher.submit(request, self.now)
        preview = explain(self.dispatcher.view, request, self.now)
        outcome = self.dispatcher.submit(request, self.now)
        match outcome:
            case Picked():
                assert preview.chosen == outcome.lease.address
                assert preview.candidates[0].address == preview.chosen
            case Queued():
                assert preview.chosen is None and preview.position >= 1
                assert preview.reason is None
            case Rejected():
                assert preview.reason is outcome.reason
        return outcome

    def _may_be_passed(self, ticket: Ticket, at: float) -> bool:
        """Whether at that time a queued request may come before a ticket that arrived earlier."""
        return at < self.order.overtaken_until(ticket.entered_at)

    def _check_bypassed(self, passed: list[Ticket]) -> None:
        """Only a request that needs several slots may be bypassed: too few are free for it."""
        assert all(ticket.request.weight_slots > 1 for ticket in passed), "a request overtook"

    def _take(self, request: Request, settlement: Settlement) -> None:
        assert request.id not in self.settled_ids, "a request is settled once"
        assert request.id not in self.withdrawn_ids, "a request that left was settled"
        self.settled_ids.add(request.id)
        if isinstance(settlement, Rejected):
            return
        lease = settlement.lease
        self._check_lease(lease)
        self._arrive(lease, self.now + self._transit_s(request))
        self.running[lease.id] = lease

    def _transit_s(self, request: Request) -> float:
        """How long the transit to its server takes: mostly a short time."""
        longest_s = 2.0 if request.is_uploading else ARRIVAL_S * 0.99
        return self.random.uniform(0, self.random.choice([0.02, 0.02, longest_s]))

    def _check_lease(self, lease: Lease) -> None:
        endpoint_slots = self.dispatcher.ledger.endpoint_slots(lease.address)
        assert endpoint_slots.leased_slots <= endpoint_slots.slots, "over its slots through us"

    def _arrive(self, lease: Lease, at: float) -> None:
        self.servers[lease.address].take(lease, at)

    def answer(self) -> None:
        """The response of an arrived request begins: some servers send headers before they start
        it."""
        lease = self._arrived()
        if lease is not None:
            self.dispatcher.responded(lease, self.now)

    def finish(self) -> None:
        lease = self._arrived()
        if lease is not None:
            self._finish(lease)

    def _arrived(self) -> Lease | None:
        leases = self.running.values()
        here = [x for x in leases if self.servers[x.address].is_here(x, self.now)]
        return self.random.choice(here) if here else None

    def _finish(self, lease: Lease) -> None:
        """Its server has finished it: we are notified soon."""
        del self.running[lease.id]
        self.servers[lease.address].let_go(lease)
        transit_s = self.random.uniform(0, self.random.choice([0.005, RELEASE_S * 0.99]))
        heapq.heappush(self.ended, (self.now + transit_s, lease.id, lease))

    def leave_running(self) -> None:
        """A client leaves, at any point of its request; its server is notified later."""
        if self.running:
            lease = self.running.pop(self.random.choice(list(self.running)))
            server = self.servers[lease.address]
            comes_at = max(self.now, server.arrivals[lease.id])
            if comes_at > self.now + ARRIVAL_S * 0.99:
                server.let_go(lease)  # it was not sent to its end
            else:
                server.linger(lease, comes_at + self.random.uniform(0, LONGEST_STEP_S))
            self.dispatcher.release(lease, LeaseEnd.ABANDONED, self.now)

    def leave_waiting(self) -> None:
        if self.waiting:
            ticket = self.waiting.pop(self.random.choice(list(self.waiting)))
            self.withdrawn_ids.add(ticket.request.id)
            self.dispatcher.withdraw(ticket, self.now)
            self.dispatcher.withdraw(ticket, self.now)

    def cancel_waiting(self) -> None:
        if self.waiting:
            ticket = self.waiting[self.random.choice(list(self.waiting))]
            self.dispatcher.cancel(ticket, self.now)
            assert ticket.id not in self.waiting

    def begin_scrape(self) -> None:
        if self.servers and len(self.scrapes) < 4:
            server = self.random.choice(list(self.servers.values()))
            self.scrapes.append(ModelScrape(server, self.now))

    def see(self) -> None:
        for scrape in self.scrapes:
            if scrape.seen is None and self.random.random() < 0.5:
                scrape.see(self.now, is_late=self.random.random() < 0.5)

    def answer_scrape(self) -> None:
        seen = [scrape for scrape in self.scrapes if scrape.seen is not None]
        if seen:
            scrape = self.random.choice(seen)
            self.scrapes.remove(scrape)
            self._observe(scrape)

    def _observe(self, scrape: ModelScrape) -> None:
        self.dispatcher.observe(scrape.observation(self.now), self.now)
        address = scrape.server.address
        if address in self._members() and not self._foreign(address):
            self.given_up.discard(address)

    def fail_scrape(self) -> None:
        if self.servers:
            address = self.random.choice(list(self.servers))
            status = self.random.choice(
                [ScrapeStatus.FAILED, ScrapeStatus.UNREACHABLE, ScrapeStatus.LOADING]
            )
            self.dispatcher.observe(
                Observation(
                    address=address, began_at=self.now, answered_at=self.now, status=status
                ),
                self.now,
            )

    def change_fleet(self) -> None:
        """Name some of the pool; a server that is named again is as it was."""
        named = self.random.sample(POOL, self.random.randint(1, len(POOL)))
        for address in named:
            if address not in self.servers:
                self.servers[address] = self._new_server(address)
        self._name(named)

    def _name(self, addresses: list[Address]) -> None:
        specs = [EndpointSpec(address=address) for address in addresses]
        self.dispatcher.set_members("test", specs, self.now)

    def _new_server(self, address: Address) -> ModelServer:
        slots, is_blind = self.random.choice([1, 2, 4, 8]), self.random.random() < 0.2
        has_numbers = self.random.random() < 0.8
        return ModelServer(address, slots, is_blind, has_numbers=has_numbers)

    def change_intent(self) -> None:
        members = self._members()
        if members:
            intent = self.random.choice([Intent.ACTIVE, Intent.ACTIVE, *Intent])
            self.dispatcher.set_intent(self.random.choice(members), intent, self.now)

    def change_routable(self) -> None:
        address = self.random.choice(POOL)
        self.dispatcher.set_routable(address, self.random.random() < 0.7, self.now)

    def change_foreign(self) -> None:
        if self.servers:
            server = self.random.choice(list(self.servers.values()))
            server.foreign = self.random.choice([0, 0, 1, server.slots])

    def restart(self) -> None:
        if self.servers:
            server = self.random.choice(list(self.servers.values()))
            server.restart(self.random.choice([1, 2, 4, 8]), is_blind=self.random.random() < 0.2)

    def serve_elsewhere(self) -> None:
        """Envoy could not connect to the picked endpoint, and used another."""
        lease = self._arrived()
        if lease is not None:
            server = self.random.choice(list(self.servers.values()))
            self.servers[lease.address].let_go(lease)
            self.dispatcher.responded(lease, self.now, served=server.address, has_headers=False)
            self._arrive(lease, self.now)

    def fail_to_connect(self) -> None:
        self.dispatcher.connect_failed(self.random.choice(POOL), self.now)

    def _scrape_all(self) -> None:
        for address in self._members():
            scrape = ModelScrape(self.servers[address], self.now)
            scrape.see(self.now)
            self._observe(scrape)

    # Claims

    def _members(self) -> list[Address]:
        return [endpoint.address for endpoint in self.dispatcher.fleet]

    def _foreign(self, address: Address) -> int:
        return self.dispatcher.ledger.endpoint_slots(address).foreign_slots

    def check(self) -> None:
        dispatcher = self.dispatcher
        assert dispatcher.faults(self.now) == []
        for endpoint in dispatcher.fleet:
            endpoint_slots = dispatcher.ledger.endpoint_slots(endpoint.address)
            server = self.servers[endpoint.address]
            assert endpoint_slots.leased_slots == sum(
                x.weight_slots for x in endpoint_slots.leases.values()
            )
            assert endpoint_slots.leased_slots >= 0 and endpoint_slots.foreign_slots >= 0
            assert endpoint_slots.free_slots >= 0
            assert not endpoint.is_removed or endpoint_slots.leases, "a removed endpoint was kept"
            if self.world is World.QUIET:
                is_sure = endpoint.address not in self.given_up
                assert endpoint_slots.foreign_slots == 0 or not is_sure, "all traffic is ours"
                assert not server.is_overrun(self.now), "a full server was bothered"
            if endpoint.is_pickable:
                self._check_idle(endpoint, endpoint_slots)
        assert list(map(id, dispatcher.queue)) == list(map(id, self.waiting.values()))
        wakeup = dispatcher.next_wakeup()
        if wakeup is not None:
            assert self.wake_up_at is not None and self.wake_up_at <= wakeup, "a lost wake-up"
        for ticket in self.waiting.values():
            assert ticket.deadline > self.now or (self.wake_up_at or 0) <= self.now
        self.reserved_since = {
            ticket.id: self.reserved_since.get(ticket.id, self.now)
            for ticket in self.waiting.values()
            if ticket.reserved_at is not None
        }

    def _may_run(self) -> Iterable[Ticket]:
        """The queued requests that wait for nothing but slots."""
        return self.dispatcher.queue

    def _check_idle(self, endpoint: Endpoint, endpoint_slots: EndpointSlots) -> None:
        """Free slots mean that no queued request can use them, or that they are reserved."""
        for ticket in self._may_run():
            if not is_eligible(ticket.constraints, endpoint):
                continue
            pool, model, is_loaded = slot_pool(endpoint, endpoint_slots, ticket.constraints.model)
            may_load = model is None or self.dispatcher.state.model_loads.may_start(model)
            if not pool.free_slots or not (is_loaded or may_load):
                continue
            is_kept = pool.reservation not in (None, ticket.reservation)
            is_fitting = can_fit(ticket.request.weight_slots, pool.free_slots, pool.slots)
            assert is_kept or not is_fitting, "idle while somebody waits who could use it"
            if not is_kept:
                assert ticket.reservation is not None, "nobody keeps slots for a heavy request"
        for pool in (endpoint_slots, *endpoint_slots.model_pools.values()):
            if pool.reservation is not None:
                holder = self.dispatcher.queue.holder(pool.reservation)
                assert holder.is_waiting, "slots are reserved for nobody"
                assert holder.request.weight_slots > 1

    def play(self, steps: int) -> None:
        """Begin with some servers, and let everything end after this many events."""
        self.change_fleet()
        for _ in range(steps):
            self.step()
        self.finish_all()

    def finish_all(self) -> None:
        """Let everything end: no lease may be left, and nothing may be remembered of any."""
        self.scrapes.clear()
        for server in self.servers.values():
            server.foreign = 0
        while self.running or self.waiting or self.ended:
            self._pass(1.0)
            self.finish()
            if self.random.random() < 0.1:
                self._scrape_all()
        for _ in range(4):
            self._pass(LONGEST_STEP_S + ARRIVAL_S)
            self._scrape_all()
        self._pass(CAPS.reported_s)
        self._scrape_all()
        for endpoint in self.dispatcher.fleet:
            endpoint_slots = self.dispatcher.ledger.endpoint_slots(endpoint.address)
            assert endpoint_slots.leases == {} and endpoint_slots.leased_slots == 0
            assert endpoint_slots.foreign_slots == 0
            assert not endpoint.is_removed
        assert len(self.settled_ids) + len(self.withdrawn_ids) == self.requests
