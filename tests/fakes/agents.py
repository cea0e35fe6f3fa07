"""The agents' port over real loopback gRPC before a real core, and an agent driven by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import grpc

from extproc.admin.agents import AgentsDependencies, AgentsService
from extproc.admin.auth.guard import Guard
from extproc.app.core_timer import CoreTimer
from extproc.core.address import Address
from extproc.core.decision import Settlement
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.observation import Observation
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.pb.coxswain.v1.agent_pb2_grpc import AgentsStub
from extproc.security.address_policy import AddressPolicy
from extproc.settings import AgentsSettings
from tests.fakes.core_events import listen

Call = grpc.aio.StreamStreamCall[pb.AgentMessage, pb.PickerMessage]


class _Listener:
    """The core's listener: passes wake-ups and pokes on."""

    def __init__(self) -> None:
        self.scrape_now: Callable[[Address], None] = lambda _: None
        self.wake: Callable[[float], None] = lambda _: None

    def settled(self, ticket: Ticket, settlement: Settlement) -> None: ...

    def wake_at(self, when: float) -> None:
        self.wake(when)

    def membership_changed(self) -> None: ...

    def unsure_of(self, address: Address) -> None:
        self.scrape_now(address)


class HandClock:
    """The picker's time where a test says how it passes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeAgentsPort:
    """What the picker knows of its agents. `looked_at` are addresses that others look at too."""

    dispatcher: Dispatcher
    service: AgentsService
    channel: grpc.aio.Channel
    port: int
    published: list[list[EndpointSpec]]
    observed: list[Observation]
    clock: Callable[[], float]
    scraped_by_picker: set[Address] = field(default_factory=set)
    policy: AddressPolicy | None = None
    changes: int = 0

    def endpoint(self, address: str) -> Endpoint:
        endpoint = self.dispatcher.fleet.get(Address.parse(address))
        assert endpoint is not None
        return endpoint

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the event loop run until something is so."""
        while not is_so():  # noqa: ASYNC110  # the core knows no events
            await asyncio.sleep(0.001)

    async def swept(self) -> None:
        """Wait until the silent were looked for at the present time of a `HandClock`."""
        await self.until(lambda: self.service._liveness._swept_at == self.clock())

    def knows(self, address: str) -> bool:
        return Address.parse(address) in self.dispatcher.fleet


@asynccontextmanager
async def agents_port(
    ttl_s: float = 3600.0,
    forget_s: float = 7200.0,
    port: int = 0,
    guard: Guard | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[FakeAgentsPort]:
    """A port that agents can attach to; none falls silent unless a test shortens its patience."""
    listener = _Listener()
    dispatcher = listen(Dispatcher(Random(1)), listener)
    published: list[list[EndpointSpec]] = []
    observed: list[Observation] = []

    def publish(specs: list[EndpointSpec]) -> None:
        published.append(specs)
        dispatcher.set_members("agents", specs, clock())

    def observe(observation: Observation) -> None:
        observed.append(observation)
        dispatcher.observe(observation, clock())

    def changed() -> None:
        fake.changes += 1

    service = AgentsService(
        AgentsDependencies(
            dispatcher=dispatcher,
            clock=clock,
            publish=publish,
            observe=observe,
            reporting_changed=changed,
            address_rejection=lambda address, peer: (
                "" if fake.policy is None else fake.policy.rejection(address, peer)
            ),
            others_naming=lambda address: [
                each for each in dispatcher.fleet.sources_of(address) if each != "agents"
            ],
            is_scraped_by_picker=lambda address: address in fake.scraped_by_picker,
        ),
        AgentsSettings(ttl_s=ttl_s, forget_s=forget_s),
    )
    listener.scrape_now = service.scrape_now
    timer = CoreTimer(dispatcher.advance)
    if clock is time.monotonic:  # no timer knows of a time that a test moves
        listener.wake = timer.wake_at
    options = (
        ("grpc.so_reuseport", 0),
        # How long a stream may wait to be accepted, where many come at once to a slow machine.
        ("grpc.server_max_unrequested_time_in_server", 3600),
    )
    server = grpc.aio.server(options=options, interceptors=(guard,) if guard is not None else ())
    service.add_to(server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{bound}") as channel:
        fake = FakeAgentsPort(dispatcher, service, channel, bound, published, observed, clock)
        try:
            yield fake
        finally:
            timer.stop()
            service.close()
            await server.stop(0.2)


class HandAgent:
    """One stream whose every message the test writes. Its clock starts at `epoch`, runs `pace`
    times as fast as ours."""

    def __init__(
        self, channel: grpc.aio.Channel, epoch: float = 0.0, pace: float = 1.0, token: str = ""
    ) -> None:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.call: Call = AgentsStub(channel).Attach(metadata=metadata)
        self._epoch = epoch
        self._pace = pace
        self._echo = 0
        self._heard_at = 0.0

    def now(self) -> float:
        return self._epoch + self._pace * time.monotonic()

    async def hear(self) -> pb.PickerMessage:
        """The picker's next message; raises `AioRpcError` where there is none."""
        message = await self.call.read()
        if not isinstance(message, pb.PickerMessage):
            code = await self.call.code()
            raise AssertionError(f"the stream ended with {code}: {await self.call.details()}")
        self._echo = message.number
        self._heard_at = self.now()
        return message

    async def hello(
        self, address: str, agent_id: str = "a", name: str = "", api_key: str = ""
    ) -> None:
        await self.hear()
        hello = pb.Hello(address=address, agent_id=agent_id, name=name, api_key=api_key)
        await self.call.write(self._message(hello=hello))

    async def scrape(
        self,
        busy: int = 0,
        slots: int = 4,
        status: pb.Observation.Status = pb.Observation.STATUS_READY,
        began_at: float | None = None,
    ) -> None:
        """Report a scrape that began at `began_at` of the agent's clock, or just now."""
        now = self.now()
        ago_s = 0.0 if began_at is None else now - began_at
        observation = pb.Observation(
            began_ago_s=ago_s, answered_ago_s=0.0, status=status, slots=slots, busy_slots=busy
        )
        await self.call.write(self._message(observation=observation, now=now))

    async def beat(self) -> None:
        await self.call.write(self._message())

    async def leave(self) -> None:
        await self.call.write(self._message(deregistration=pb.Deregistration()))

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """How the picker ended the stream."""
        with suppress(grpc.aio.AioRpcError):
            while isinstance(await self.call.read(), pb.PickerMessage):
                pass
        return await self.call.code(), await self.call.details()

    def _message(
        self,
        hello: pb.Hello | None = None,
        observation: pb.Observation | None = None,
        deregistration: pb.Deregistration | None = None,
        now: float | None = None,
    ) -> pb.AgentMessage:
        """All ages in one message are ages at one moment, `now`."""
        held_s = (self.now() if now is None else now) - self._heard_at
        return pb.AgentMessage(
            echo=self._echo,
            held_s=held_s,
            hello=hello,
            observation=observation,
            deregistration=deregistration,
        )
