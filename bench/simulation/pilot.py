"""The real core in virtual time: its dispatcher decides, scrapes keep it informed."""

from collections.abc import Sequence
from functools import partial
from random import Random

from bench.simulation.balancers import Balancer
from bench.simulation.job import Job
from bench.simulation.server import Server
from extproc.core.address import Address
from extproc.core.decision import Picked, Queued, Settlement
from extproc.core.events import (
    MembershipChanged,
    ScrapeRequested,
    Settled,
    StepFailed,
    WakeRequested,
)
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import Observation, ScrapeStatus, SlotReading
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Kind, Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd

UNBOUNDED = DispatcherOptions(
    queue=QueueLimits(max_requests=10**9), health=HealthOptions(stale_after_s=1e9)
)
"""All requests may be queued, and an observation is never stale."""
FAST_SCRAPE_S = 0.2
"""Between scrapes while a server's numbers may change without us, as the scraper has it."""
SCRAPE_S = 1.0
"""Between scrapes at other times."""
SOON_S = 0.05
"""Until a client that was cut off asks again, and until a requested scrape."""


class Pilot(Balancer):
    """A balancer that asks the dispatcher."""

    def __init__(
        self,
        servers: Sequence[Server],
        random: Random,
        options: DispatcherOptions | None = None,
        *,
        is_blind: bool = False,
        scrapes_until: float = 0.0,
    ) -> None:
        """`is_blind` hides the prompts from the core: what is left is one fair line."""
        self._servers = servers
        self._clock = servers[0].clock
        self._is_blind = is_blind
        self._scrapes_until = scrapes_until
        self._leases: dict[int, Lease] = {}
        self._jobs: dict[str, Job] = {}
        self._walked: dict[int, tuple[list[Address], Address]] = {}
        self._has_failures = False
        self._timer: float | None = None
        self.dispatcher = Dispatcher(random, UNBOUNDED if options is None else options)
        self.dispatcher.on_events(self._take_events)
        self._addresses = [Address("10.0.0.1", 8000 + server.index) for server in servers]
        specs = [
            EndpointSpec(address=address, context=_context(server))
            for address, server in zip(self._addresses, servers, strict=True)
        ]
        self.dispatcher.set_members("simulation", specs, 0.0)
        for server in servers:
            server.on_answer = self._answered
            server.on_end = self._ended
            server.on_killed = self._killed
            self._scrape(server, 0.0)

    # The core's surroundings

    def _take_events(self) -> None:
        for event in self.dispatcher.take_events():
            match event:
                case Settled(ticket=ticket, settlement=settlement):
                    self.settled(ticket, settlement)
                case WakeRequested(at=at) if self._timer is None or at < self._timer:
                    self._timer = at
                    self._clock.at(max(at, self._clock.now), self._ring)
                case ScrapeRequested(address=address):  # the next one comes as scheduled
                    observe = partial(self._observe, self._server(address))
                    self._clock.at(self._clock.now + SOON_S, observe)
                case MembershipChanged():
                    self.dispatcher.fleet.membership()
                case StepFailed(error=error):
                    raise error

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        self._settle(self._jobs[ticket.request.id], settlement, self._clock.now)

    def _ring(self, now: float) -> None:
        if self._timer is not None and self._timer <= now:
            self._timer = None
            self.dispatcher.advance(now)

    # Jobs

    def arrive(self, job: Job, now: float) -> None:
        request = Request(
            id=str(job.id),
            timeout_s=1e9,
            fairness_id=job.tenant,
            objective=job.objective,
            session_id=None if self._is_blind else job.session,
            prompt_blocks=() if self._is_blind else job.blocks,
            prompt_tokens=job.estimated_tokens or job.prompt_tokens or None,
            max_tokens=job.max_tokens,
            traits=job.traits,
            kind=Kind.EMBEDDING if job.is_embedding else Kind.GENERATION,
        )
        self._jobs[request.id] = job
        outcome = self.dispatcher.submit(request, now)
        if isinstance(outcome, Queued):
            self.noted(job, outcome.ticket, now)
        else:
            self._settle(job, outcome, now)

    def noted(self, job: Job, ticket: Ticket, now: float) -> None:
        """A job began to wait; a scenario may record its prediction."""

    def _settle(self, job: Job, settlement: Settlement, now: float) -> None:
        del self._jobs[str(job.id)]
        if isinstance(settlement, Rejected):
            job.rejection = settlement.reason.value
            return
        assert isinstance(settlement, Picked)
        lease = self._leases[job.id] = settlement.lease
        server = self._server(lease.address)
        if not server.is_up:
            self._walk(job, [lease.address, *settlement.fallbacks], now)
            return
        is_full = server.load >= server.hardware.slots
        assert self._has_failures or not is_full, "a full server was bothered"
        server.take(job, now)

    def _walk(self, job: Job, addresses: list[Address], now: float) -> None:
        """As Envoy does: to the first that can be reached, which the picker hears of with the
        response headers. With nobody there its client asks again."""
        self._has_failures = True
        for index, address in enumerate(addresses):
            if self._server(address).is_up:
                self._walked[job.id] = (addresses[:index], address)
                self._server(address).take(job, now)
                return
        for address in addresses:
            self.dispatcher.connect_failed(address, now)
        self.dispatcher.release(self._leases.pop(job.id), LeaseEnd.SERVED, now)
        self._clock.at(now + SOON_S, lambda at: self.arrive(job, at))

    def _server(self, address: Address) -> Server:
        return self._servers[address.port - 8000]

    def lost(self, job: Job, now: float) -> None:
        """Envoy's stream breaks, and its client asks again at once."""
        self._has_failures = True
        self._walked.pop(job.id, None)
        self.dispatcher.release(self._leases.pop(job.id), LeaseEnd.ABANDONED, now)
        self.arrive(job, now)

    def _answered(self, job: Job, now: float) -> None:
        lease = self._leases[job.id]
        unreachable, served = self._walked.pop(job.id, ([], lease.address))
        for address in unreachable:
            self.dispatcher.connect_failed(address, now)
        self.dispatcher.responded(lease, now, served=served)

    def _ended(self, job: Job, now: float) -> None:
        first_at = self.dispatcher.release(self._leases.pop(job.id), LeaseEnd.SERVED, now)
        if first_at is not None:
            job.notes["told_first_at"] = first_at

    def _killed(self, job: Job, now: float) -> None:
        """Its server answered with an error."""
        self.dispatcher.release(self._leases.pop(job.id), LeaseEnd.SERVED, now)

    # Looks

    def _scrape(self, server: Server, now: float) -> None:
        self._observe(server, now)
        is_high_priority = self.dispatcher.view.needs_frequent_scrapes(
            self._addresses[server.index]
        )
        next_at = now + (FAST_SCRAPE_S if is_high_priority else SCRAPE_S)
        if next_at <= self._scrapes_until:
            self._clock.at(next_at, lambda at: self._scrape(server, at))

    def _observe(self, server: Server, now: float) -> None:
        address = self._addresses[server.index]
        if server.is_up:
            observation = Observation(
                address=address,
                began_at=now,
                answered_at=now,
                status=ScrapeStatus.READY,
                slots=server.hardware.slots,
                busy_slots=len(server.running),
                instance=str(server.instance),
                slot_readings=tuple(_reading(server, job, now) for job in server.running.values()),
                context_tokens=server.hardware.context_tokens,
            )
        else:
            observation = Observation(
                address=address, began_at=now, answered_at=now, status=ScrapeStatus.UNREACHABLE
            )
        self.dispatcher.observe(observation, now)


def _context(server: Server) -> ContextSharing:
    is_split = server.hardware.pool_tokens is None
    return ContextSharing.PER_SLOT if is_split else ContextSharing.SHARED


def _reading(server: Server, job: Job, now: float) -> SlotReading:
    decoded = processed = 0
    held = job.prompt_tokens
    token_s = job.notes.get("token_s")
    if job.answered_at is not None and token_s:
        decoded = min(job.answer_tokens, 1 + int((now - job.answered_at) / token_s))
        processed = job.prompt_tokens - job.cached_tokens  # counted when its batch is over
    if server.hardware.pool_tokens is not None:
        held = min(held, round(server.held_tokens(job, now)))
    return SlotReading(
        task_id=job.id,
        prompt_tokens=held + decoded,
        cached_tokens=job.cached_tokens,
        processed_tokens=processed,
        decoded_tokens=decoded,
    )


class Noting(Pilot):
    """Records the predictions of the core."""

    def noted(self, job: Job, ticket: Ticket, now: float) -> None:
        expected_s = self.dispatcher.view.position_of(ticket, now).expected_s
        if expected_s is not None:
            job.notes["wait_s"] = expected_s

    def _settle(self, job: Job, settlement: Settlement, now: float) -> None:
        super()._settle(job, settlement, now)
        lease = self._leases.get(job.id)
        run_ = self.dispatcher.state.in_flight.get(lease) if lease is not None else None
        if lease is not None and run_ is not None:
            speed = self.dispatcher.state.latency.estimate(lease.address, now)
            job.notes["first_s"] = speed.first_token_s(run_.uncached_tokens)
            job.notes["cached"] = run_.cached_tokens


class PassingPilot(Pilot):
    """Notes at each job that it passed an earlier one of its flow that had waited for the bound."""

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        now, bound_s = self._clock.now, self.dispatcher.options.order.max_overtaken_s
        for other in self.dispatcher.queue:
            if other.id >= ticket.id or now - other.entered_at < bound_s:
                break
            if other.flow is ticket.flow and other.constraints == ticket.constraints:
                self._jobs[ticket.request.id].notes["passed_late"] = 1.0
                break
        super().settled(ticket, settlement)
