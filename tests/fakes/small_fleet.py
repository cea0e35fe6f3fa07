"""A dispatcher with a clock in hand and a listener that remembers, for tests of single claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Queued, Settlement
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.selection.ranking import Fallbacks
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.ledger import DrainingCaps
from tests.fakes.core_events import listen

CAPS = DrainingCaps(reported_s=10.0, blind_s=1.0)
ONE = Address("10.0.0.1", 8080)


class RecordingListener:
    """Remembers what the core told. `on_settled` may be set to what a waiting room does."""

    def __init__(self) -> None:
        self.settlements: dict[int, Settlement] = {}
        self.timer: float | None = None
        self.membership_changes = 0
        self.unsure: list[Address] = []
        self.on_settled: Callable[[Ticket, Settlement], object] | None = None

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        assert ticket.id not in self.settlements, "a ticket is settled once"
        self.settlements[ticket.id] = settlement
        if self.on_settled is not None:
            self.on_settled(ticket, settlement)

    def wake_at(self, when: float) -> None:
        self.timer = when if self.timer is None else min(self.timer, when)

    def membership_changed(self) -> None:
        self.membership_changes += 1

    def unsure_of(self, address: Address) -> None:
        self.unsure.append(address)


class SmallFleet:
    """Endpoints at 10.0.0.1, 10.0.0.2 and so on; `now` moves only when a test moves it."""

    def __init__(
        self,
        *slots: int,
        queue_max_requests: int = 100,
        fallbacks: int = 2,
        stale_after_s: float = 1000.0,
        stale_per_endpoint_s: float = 0.0,
        seed: int = 1,
        splits: Mapping[str, Mapping[str, float]] | None = None,
        match: ModelMatch = ModelMatch.LENIENT,
        must_know_models: bool = True,
        order: QueueOrder = ARRIVAL_ORDER,
    ) -> None:
        self.now = 100.0
        self.listener = RecordingListener()
        self.dispatcher = listen(
            Dispatcher(
                Random(seed),
                DispatcherOptions(
                    queue=QueueLimits(max_requests=queue_max_requests),
                    fallbacks=Fallbacks(limit=fallbacks),
                    health=HealthOptions(
                        stale_after_s=stale_after_s, stale_per_endpoint_s=stale_per_endpoint_s
                    ),
                    draining_caps=CAPS,
                    resolver=ResolverOptions(
                        splits=splits or {},
                        model_match=match,
                        must_know_models=must_know_models,
                    ),
                    order=order,
                ),
            ),
            self.listener,
        )
        self.addresses: list[Address] = []
        for count in slots:
            self.add(count)

    def add(self, slots: int | None, busy: int | None = 0) -> Address:
        """One more endpoint; `slots` None stays unseen, `busy` None does not show its slots."""
        address = Address("10.0.0.1", 8000 + len(self.addresses))
        self.addresses.append(address)
        self.name(*self.addresses)
        if slots is not None:
            self.scrape(address, busy=busy, slots=slots)
        return address

    def name(self, *addresses: Address) -> None:
        """Make these the members."""
        self.dispatcher.set_members("test", [EndpointSpec(address=a) for a in addresses], self.now)

    def scrape(
        self,
        address: Address,
        *,
        busy: int | None = 0,
        slots: int | None = None,
        status: ScrapeStatus = ScrapeStatus.READY,
        began_at: float | None = None,
        instance: str | None = None,
        issues: tuple[Issue, ...] = (),
        models: tuple[ModelReading, ...] = (),
    ) -> None:
        """A scrape is answered now; it began now too, unless told."""
        observation = Observation(
            address=address,
            began_at=self.now if began_at is None else began_at,
            answered_at=self.now,
            status=status,
            slots=slots,
            busy_slots=busy,
            instance=instance,
            issues=issues,
            models=models,
        )
        self.dispatcher.observe(observation, self.now)

    def submit(self, *, timeout_s: float = 60.0, weight_slots: int = 1) -> Decision:
        request = Request(id="r", timeout_s=timeout_s, weight_slots=weight_slots)
        return self.dispatcher.submit(request, self.now)

    def pick(self, *, weight_slots: int = 1) -> Lease:
        """A request that must be picked at once."""
        outcome = self.submit(weight_slots=weight_slots)
        assert isinstance(outcome, Picked)
        return outcome.lease

    def queue(self, *, timeout_s: float = 60.0, weight_slots: int = 1) -> Ticket:
        """A request that must wait."""
        outcome = self.submit(timeout_s=timeout_s, weight_slots=weight_slots)
        assert isinstance(outcome, Queued)
        return outcome.ticket

    def finish(self, lease: Lease) -> None:
        """Its answer is whole; one without headers so far came all at once."""
        self.dispatcher.responded(lease, self.now, is_stream=False)
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    def abandon(self, lease: Lease) -> None:
        self.dispatcher.release(lease, LeaseEnd.ABANDONED, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, ringing the alert exactly when it was requested and no oftener."""
        end = self.now + seconds
        while self.listener.timer is not None and self.listener.timer <= end:
            self.now = max(self.now, self.listener.timer)
            self.listener.timer = None
            self.dispatcher.advance(self.now)
        self.now = end

    def handed(self, ticket: Ticket) -> Lease:
        """The lease that a ticket got."""
        settlement = self.listener.settlements[ticket.id]
        assert isinstance(settlement, Picked)
        return settlement.lease

    def rejected(self, ticket: Ticket) -> Rejected:
        """How a ticket was refused."""
        settlement = self.listener.settlements[ticket.id]
        assert isinstance(settlement, Rejected)
        return settlement

    def account(self, address: Address) -> EndpointSlots:
        return self.dispatcher.ledger.endpoint_slots(address)

    def endpoint(self, address: Address) -> Endpoint:
        endpoint = self.dispatcher.fleet.get(address)
        assert endpoint is not None
        return endpoint


def dispatcher_of_one(
    *, busy_slots: int | None = None, options: DispatcherOptions | None = None
) -> Dispatcher:
    """One endpoint of two slots, scraped at 1.0 if `busy_slots` is given."""
    dispatcher = listen(Dispatcher(Random(1), options or DispatcherOptions()), RecordingListener())
    dispatcher.set_members("test", [EndpointSpec(address=ONE, name="gpu-1")], 0.0)
    if busy_slots is not None:
        dispatcher.observe(
            Observation(
                address=ONE,
                began_at=1.0,
                answered_at=1.0,
                status=ScrapeStatus.READY,
                slots=2,
                busy_slots=busy_slots,
                models=(ModelReading(name="tiny"),),
                issues=(Issue(code="slow", message="it is slow", remedy="wait"),),
            ),
            1.0,
        )
    return dispatcher
