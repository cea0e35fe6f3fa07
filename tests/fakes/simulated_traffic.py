"""Traffic in simulated time through the real streams and the real core, without a wait.

Servers of two models, whose clients ask again as soon as they were answered: so the number of
queued requests stays about the same. The time is that of a heap of events.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import NamedTuple

from bench.simulation.traces import lognormal
from extproc.core.address import Address
from extproc.core.decision import Settlement
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.settings import QueueSettings
from extproc.settings.values import MAX_SECONDS
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.servicer import ExternalProcessor
from extproc.transport import ServiceTable
from tests.fakes import envoy_messages as envoy
from tests.fakes.core_events import listen
from tests.fakes.envoy_stream import HandCall

OBJECTIVES = Objectives(
    by_name={
        "chat": Objective(name="chat", criticality=Criticality.CRITICAL),
        "work": Objective(name="work"),
        "batch": Objective(name="batch", criticality=Criticality.SHEDDABLE),
    }
)
SCRAPE_S = 1.0
THINK_S = 1.0
"""Until a client that was rejected asks again."""


class Client(NamedTuple):
    """Asks for one model with one objective, again and again."""

    model: str
    objective: str


class SimulatedTraffic:
    """`started` are the times at which requests got a slot, by their ids; `records` are of those
    that ended."""

    def __init__(
        self, servers: Sequence[tuple[str, int]], clients: Sequence[Client], *, seed: int
    ) -> None:
        """`servers` are models with their numbers of slots."""
        self.now = 1000.0
        self.started: dict[str, float] = {}
        self.records: list[ExchangeRecord] = []
        self._random = Random(seed)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._servers = {
            Address("10.0.0.1", 8000 + index): server for index, server in enumerate(servers)
        }
        self.pending_streams = PendingStreams()
        self.registry = ExchangeRegistry()
        self._on_settled: dict[int, Callable[[], None]] = {}
        options = DispatcherOptions(
            queue=QueueLimits(max_requests=1000),
            health=HealthOptions(stale_after_s=1e9),
            resolver=ResolverOptions(objectives=OBJECTIVES),
        )
        self.dispatcher = listen(Dispatcher(Random(seed), options), self)
        self.processor = ExternalProcessor(
            self.dispatcher,
            self.pending_streams,
            self.registry,
            ExchangeOptions(queue=QueueSettings(timeout_s=MAX_SECONDS)),
            self.clock,
            self.records.append,
        )
        self._table: ServiceTable = {}
        self.processor.add_to(self._table)
        specs = [EndpointSpec(address=address) for address in self._servers]
        self.dispatcher.set_members("simulation", specs, self.now)
        for address in self._servers:
            self._scrape(address)
        for index, client in enumerate(clients):
            self._at(0.01 * index, partial(self._ask_again, client))

    def clock(self) -> float:
        return self.now

    def waiting(self) -> Iterator[Ticket]:
        """The queued requests."""
        return iter(self.dispatcher.queue)

    async def run(self, seconds: float) -> None:
        """Let that much time pass."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
            await asyncio.sleep(0)  # settled streams go on in the loop's next turn
        self.now = until

    def ask(self, client: Client, *, is_once: bool = False) -> str:
        """A client sends a request; returns its id."""
        id_ = f"r{next(self._serial)}"
        call = HandCall().open(self._table[PROCESS])
        call.say(
            envoy.request_headers(
                x_request_id=id_,
                x_gateway_model_name=client.model,
                x_gateway_inference_objective=client.objective,
            )
        )
        self._at(0.0, lambda: self._follow(call, client, id_, is_once=is_once))
        return id_

    def _ask_again(self, client: Client) -> None:
        self.ask(client)

    def _follow(self, call: HandCall, client: Client, id_: str, *, is_once: bool) -> None:
        """What Envoy was told last."""
        last = call.sent[-1]
        if last.HasField("override_message_timeout"):
            ticket = self.pending_streams.find(id_)
            assert ticket is not None
            self._on_settled[ticket.id] = lambda: self._follow(call, client, id_, is_once=is_once)
        elif last.HasField("immediate_response"):
            call.reset()
            if not is_once:
                self._at(THINK_S, partial(self._ask_again, client))
        else:
            self.started[id_] = self.now
            served = envoy.destination(last)[0]
            lasts_s = lognormal(self._random, 4.0, 0.7)
            self._at(0.2, lambda: call.say(envoy.response_headers(served=served)))
            self._at(lasts_s, lambda: self._end(call, client, is_once=is_once))

    def _end(self, call: HandCall, client: Client, *, is_once: bool) -> None:
        call.half_close()
        if not is_once:
            self.ask(client)

    def _scrape(self, address: Address) -> None:
        model, slots = self._servers[address]
        busy = self.dispatcher.view.slots_at(address).leased_slots
        self.dispatcher.observe(
            Observation(
                address=address,
                began_at=self.now,
                answered_at=self.now,
                status=ScrapeStatus.READY,
                slots=slots,
                busy_slots=busy,
                models=(ModelReading(name=model),),
            ),
            self.now,
        )
        self._at(SCRAPE_S, lambda: self._scrape(address))

    def _at(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + delay_s, next(self._serial), action))

    # What the core asks of the code around it

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        self.pending_streams.settled(ticket, settlement)
        self._at(0.0, self._on_settled.pop(ticket.id))

    def wake_at(self, when: float) -> None:
        self._at(max(0.0, when - self.now), lambda: self.dispatcher.advance(self.now))

    def membership_changed(self) -> None:
        self.dispatcher.fleet.membership()

    def unsure_of(self, address: Address) -> None:
        """The next scrape will show it."""
