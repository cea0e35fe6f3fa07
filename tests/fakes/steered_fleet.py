"""A dispatcher whose requests and endpoints can say all they know, for tests of single claims."""

from __future__ import annotations

from random import Random
from typing import Any

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Queued
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.core_events import listen
from tests.fakes.small_fleet import RecordingListener


class SteeredFleet:
    """Endpoints at 10.0.0.1:8000 and up. `now` moves when a test moves it."""

    def __init__(
        self,
        *objectives: Objective,
        queue_max_requests: int = 100,
        match: ModelMatch = ModelMatch.LENIENT,
        splits: dict[str, dict[str, float]] | None = None,
        by_model: dict[str, str] | None = None,
        order: QueueOrder = ARRIVAL_ORDER,
        context: ContextSharing = ContextSharing.AUTO,
    ) -> None:
        self.now = 100.0
        self.context = context
        self.listener = RecordingListener()
        by_name = {objective.name: objective for objective in objectives}
        resolver = ResolverOptions(
            model_match=match,
            splits=splits or {},
            objectives=Objectives(by_name=by_name, by_model=by_model or {}),
        )
        options = DispatcherOptions(
            queue=QueueLimits(max_requests=queue_max_requests),
            health=HealthOptions(stale_after_s=1e9),
            resolver=resolver,
            order=order,
        )
        self.dispatcher = listen(Dispatcher(Random(1), options), self.listener)
        self.addresses: list[Address] = []

    def join(self) -> Address:
        """One more endpoint that nobody has looked at yet."""
        address = Address("10.0.0.1", 8000 + len(self.addresses))
        self.addresses.append(address)
        specs = [EndpointSpec(address=one, context=self.context) for one in self.addresses]
        self.dispatcher.set_members("test", specs, self.now)
        return address

    def add(self, slots: int, **told: Any) -> Address:
        """One more endpoint with idle slots."""
        address = self.join()
        self.scrape(address, slots=slots, busy_slots=0, **told)
        return address

    def scrape(self, address: Address, **told: Any) -> None:
        """A scrape at it is in; models may be given by their names, adapters too."""
        told["models"] = tuple(
            ModelReading(name=model) if isinstance(model, str) else model
            for model in told.get("models", ())
        )
        if "adapters" in told:
            told["adapters"] = tuple(
                AdapterReading(id=number, name=name) for number, name in enumerate(told["adapters"])
            )
        self.dispatcher.observe(
            Observation(
                address=address,
                began_at=self.now,
                answered_at=self.now,
                status=told.pop("status", ScrapeStatus.READY),
                **told,
            ),
            self.now,
        )

    def submit(self, **asked: Any) -> Decision:
        asked = {"id": "r", "timeout_s": 600.0, **asked}
        return self.dispatcher.submit(Request(**asked), self.now)

    def pick(self, **asked: Any) -> Lease:
        outcome = self.submit(**asked)
        assert isinstance(outcome, Picked), outcome
        return outcome.lease

    def queue(self, **asked: Any) -> Ticket:
        outcome = self.submit(**asked)
        assert isinstance(outcome, Queued), outcome
        return outcome.ticket

    def rejection(self, **asked: Any) -> str:
        outcome = self.submit(**asked)
        assert isinstance(outcome, Rejected), outcome
        return outcome.reason.value

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and then what is due happen."""
        self.now += seconds
        self.dispatcher.advance(self.now)

    def finish(self, lease: Lease) -> None:
        """Its answer is whole; one without headers so far came all at once."""
        self.dispatcher.responded(lease, self.now, is_stream=False)
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)

    def served(self, ticket: Ticket) -> Lease:
        """The lease that a ticket was given."""
        settlement = self.listener.settlements[ticket.id]
        assert isinstance(settlement, Picked), settlement
        return settlement.lease

    def is_waiting(self, ticket: Ticket) -> bool:
        return ticket.id not in self.listener.settlements
