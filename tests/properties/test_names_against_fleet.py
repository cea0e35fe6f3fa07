"""A request for an adapter never loses it, and a name without an adapter delays no request: for
servers that join, load, fail, leave and report at any time while requests come."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.constraints import UNRESOLVED
from extproc.core.decision import Decision, Picked, Queued, Settlement
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.model_names import Unreported
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.core_events import listen

POOL = [Address("10.0.0.1", 8000 + number) for number in range(5)]
ADAPTERS = ("bard", "pirate", "poet")
ORDINARY = ("m", "m", "qwen2.5:7b", "hf/user:Q4_K_M", "gpt-4o", "m:latest")


class NamingFleet:
    """Drives a dispatcher as the stream does: names are split when a request comes. The models of
    each server never change, but it reports them late."""

    def __init__(self, random: Random, match: ModelMatch) -> None:
        self.random = random
        self.now = 100.0
        self.is_lenient = match is ModelMatch.LENIENT
        self.slots = {address: random.choice([1, 2, 4]) for address in POOL}
        self.numbers = {address: self._adapters() for address in POOL}
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Lease] = {}
        self.wanted: dict[str, tuple[str | None, frozenset[Address]]] = {}
        """By request: the adapter, and the servers that had it when the request came and have not
        left since."""
        self.taken: set[str] = set()
        """Names that were found to be no adapter's when all servers had reported."""
        self.served = self.with_adapter = self.undecided = 0
        options = DispatcherOptions(
            queue=QueueLimits(max_requests=30),
            health=HealthOptions(stale_after_s=1e9),
            resolver=ResolverOptions(model_match=match),
        )
        self.dispatcher = listen(Dispatcher(random, options), self)

    def _adapters(self) -> dict[str, int]:
        many = self.random.choice([0, 0, 1, 2, 3])
        return {name: number for number, name in enumerate(self.random.sample(ADAPTERS, many))}

    # The listener's side

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        del self.waiting[ticket.id]
        self.take(ticket.request, settlement)

    def wake_at(self, when: float) -> None:
        """Time is advanced at every step."""

    def membership_changed(self) -> None:
        self.dispatcher.fleet.membership()

    def unsure_of(self, address: Address) -> None:
        raise AssertionError(f"nothing happened at {address}")

    # Events

    def step(self) -> None:
        self.now += self.random.expovariate(5.0)
        self.dispatcher.advance(self.now)
        events = {self.ask: 10, self.finish: 9, self.scrape: 6, self.fail: 2, self.change_fleet: 1}
        undecided = [one for one in self.waiting.values() if one.constraints == UNRESOLVED]
        self.random.choices(list(events), list(events.values()))[0]()
        for ticket in undecided:
            request = ticket.request
            if self.is_lenient and ticket.constraints != UNRESOLVED and request.adapter is None:
                self.taken.add(request.model or "")

    def ask(self) -> None:
        random = self.random
        adapter = random.choice([None, *ADAPTERS])
        is_header = adapter is not None and random.random() < 0.3
        name = f"{random.choice(['', 'm'])}:{adapter}" if adapter else random.choice(ORDINARY)
        names = self.dispatcher.state.resolver.names
        model, found = ("m", adapter) if is_header else names.split(name)
        request = Request(
            id=str(len(self.wanted)),
            timeout_s=random.choice([0.0, 5.0, 60.0]),
            weight_slots=random.choices([1, 2], [9, 1])[0],
            model=model,
            adapter=found,
        )
        havers = frozenset(a for a in self.members() if adapter in self.numbers[a])
        is_known = bool(self.members()) and names.unreported() is Unreported.NONE
        if is_known and found is None and self.is_lenient:
            self.taken.add(name)
        is_lost = name in self.taken and found is None
        self.wanted[request.id] = (adapter, frozenset() if is_lost else havers)
        outcome = self.dispatcher.submit(request, self.now)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
        else:
            self.take(request, outcome)
        self.check_arrival(name, request, outcome, is_known=is_known)

    def check_arrival(
        self, name: str, request: Request, outcome: Decision, *, is_known: bool
    ) -> None:
        if not isinstance(outcome, Queued):
            return
        if outcome.ticket.constraints == UNRESOLVED:
            self.undecided += 1
            is_taken = request.adapter is None and name in self.taken
            assert not is_known and not is_taken, "a known fleet holds up no name"
        elif request.adapter is None:
            for endpoint in self.dispatcher.fleet:
                endpoint_slots = self.dispatcher.ledger.endpoint_slots(endpoint.address)
                is_fitting = endpoint_slots.free_slots >= min(
                    request.weight_slots, endpoint_slots.slots or 1
                )
                is_free = endpoint.is_pickable and endpoint_slots.reservation is None and is_fitting
                assert not is_free, "held up by those who wait for an adapter"

    def take(self, request: Request, settlement: Settlement) -> None:
        if isinstance(settlement, Rejected):
            return
        assert isinstance(settlement, Picked)
        lease = self.running[settlement.lease.id] = settlement.lease
        self.served += 1
        adapter, havers = self.wanted[request.id]
        number = None if adapter is None else self.numbers[lease.address].get(adapter)
        if settlement.adapter_id is not None:
            self.with_adapter += 1
            assert settlement.adapter_id == number, "another adapter than was named"
        else:
            assert not havers & set(self.members()), "the adapter was lost"

    def finish(self) -> None:
        if self.running:
            lease = self.running.pop(self.random.choice(list(self.running)))
            self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    def members(self) -> list[Address]:
        return [one.address for one in self.dispatcher.fleet if not one.is_removed]

    def scrape(self) -> None:
        for address in self.random.sample(self.members(), min(1, len(self.members()))):
            does_report = self.random.random() < 0.7
            numbers = self.numbers[address].items()
            adapters = tuple(AdapterReading(id=number, name=name) for name, number in numbers)
            leased = self.dispatcher.ledger.endpoint_slots(address).leased_slots
            self.tell(
                Observation(
                    address=address,
                    began_at=self.now,
                    answered_at=self.now,
                    status=ScrapeStatus.READY,
                    slots=self.slots[address],
                    busy_slots=leased,
                    models=(ModelReading(name="m"),),
                    adapters=adapters if does_report else None,
                    awaits_adapters=not does_report,
                )
            )

    def fail(self) -> None:
        for address in self.random.sample(self.members(), min(1, len(self.members()))):
            status = self.random.choice(
                [ScrapeStatus.LOADING, ScrapeStatus.UNREACHABLE, ScrapeStatus.FAILED]
            )
            self.tell(
                Observation(address=address, began_at=self.now, answered_at=self.now, status=status)
            )

    def tell(self, observation: Observation) -> None:
        self.dispatcher.observe(observation, self.now)
        if self.dispatcher.state.resolver.names.unreported() is Unreported.NONE:
            left = [one for one in self.waiting.values() if one.constraints == UNRESOLVED]
            assert not left, "all have told"

    def change_fleet(self) -> None:
        named = self.random.sample(POOL, self.random.randint(0, len(POOL)))
        for id_, (adapter, havers) in self.wanted.items():
            self.wanted[id_] = (adapter, havers.intersection(named))
        specs = [EndpointSpec(address=address) for address in named]
        self.dispatcher.set_members("test", specs, self.now)


@given(seed=st.integers(0, 2**32), match=st.sampled_from(ModelMatch))
@settings(max_examples=60, deadline=None)
def test_no_adapter_is_lost(seed: int, match: ModelMatch) -> None:
    fleet = NamingFleet(Random(seed), match)
    fleet.change_fleet()
    for _ in range(200):
        fleet.step()


@pytest.mark.parametrize("match", ModelMatch)
def test_a_long_run_of_names(match: ModelMatch) -> None:
    """Long enough that every claimed event occurs."""
    counts = [0, 0, 0]
    for seed in range(30):
        fleet = NamingFleet(Random(seed), match)
        for _ in range(400):
            fleet.step()
        for place, count in enumerate((fleet.served, fleet.with_adapter, fleet.undecided)):
            counts[place] += count
    assert all(count > 50 for count in counts), counts
