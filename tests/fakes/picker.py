"""A picker over real loopback gRPC without servers or scraper: the test says what was observed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

import grpc

from extproc.admin import AdminDependencies, AdminService, add_reflection
from extproc.admin.dependencies import (
    NewEndpoint,
    NewEndpointError,
    ReadUsage,
    Reloaded,
    ReloadError,
)
from extproc.admin.health import add_health
from extproc.admin.keepers import KeepersDependencies, KeepersService
from extproc.admin.service import SERVICE as ADMIN_SERVICE
from extproc.app.placement import Placement
from extproc.app.records import Records
from extproc.core.address import Address
from extproc.core.decision import Settlement
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.processes import Processes
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.pb import external_processor_pb2 as ext_proc
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.pb.external_processor_pb2_grpc import ExternalProcessorStub
from extproc.records.fleet_events import FleetEvents
from extproc.security.address_policy import AddressPolicy
from extproc.settings.logging_section import RecordsSettings
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.servicer import ExternalProcessor
from extproc.transport import ServiceTable
from extproc.transport.health import SERVICE as HEALTH_SERVICE
from extproc.transport.health import Health
from tests.fakes.core_events import listen
from tests.fakes.data_plane import serving

T = TypeVar("T")
Stream = grpc.aio.StreamStreamCall[ext_proc.ProcessingRequest, ext_proc.ProcessingResponse]


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something is so; the server runs in it too."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the core knows no events
            await asyncio.sleep(0.001)


async def rest_of(call: grpc.aio.UnaryStreamCall[Any, T]) -> list[T]:
    """All messages that are still to come."""
    messages: list[T] = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(cast("T", message))
    return messages


class FakeSettings:
    """Settings of which one key can be reloaded; `problem` makes a reload fail."""

    file = "coxswain.yaml"

    def __init__(self) -> None:
        self.problem = ""
        self.reloads = 0

    def describe(self) -> Mapping[str, object]:
        return {"queue": {"timeout_s": 60.0}}

    async def reload(self, is_dry_run: bool) -> Reloaded:
        if self.problem:
            raise ReloadError(self.problem)
        self.reloads += not is_dry_run
        return Reloaded(applied=("queue.timeout_s",), needs_restart=("listen.grpc",))


class FakeAdded:
    """Takes every arrival in, once `may_read` is set, and keeps it in `arrivals`; `problem`
    makes it refuse."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.arrivals: dict[Address, NewEndpoint] = {}
        self.problem = ""
        self.is_asked = False
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def add(self, arrival: NewEndpoint) -> None:
        self.is_asked = True
        await self.may_read.wait()
        if self.problem:
            raise NewEndpointError(self.problem)
        self.arrivals[arrival.address] = arrival
        self._publish_all()

    def remove(self, address: Address) -> None:
        self.arrivals.pop(address, None)
        self._publish_all()

    def _publish_all(self) -> None:
        specs = [
            EndpointSpec(
                address=each.address,
                name=each.name,
                hostname="" if each.host == each.address.host else each.host,
                slots=each.slots or None,
            )
            for each in self.arrivals.values()
        ]
        self._dispatcher.set_members("admin", specs, time.monotonic())


AGAIN_S = 0.05
"""Between two looks at a server that a client left."""


class Surface:
    """The core's listener: wakes who waits, and needs no alert."""

    def __init__(self, pending_streams: PendingStreams) -> None:
        self._waiting_room = pending_streams

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        self._waiting_room.settled(ticket, settlement)

    def wake_at(self, when: float) -> None:
        pass

    def membership_changed(self) -> None:
        pass

    def unsure_of(self, address: Address) -> None:
        pass


@dataclass(slots=True, kw_only=True)
class FakePicker:
    """Everything but Envoy and the servers; `admin` is a client of its admin service."""

    dispatcher: Dispatcher
    registry: ExchangeRegistry
    settings: FakeSettings
    added: FakeAdded
    health: Health
    channel: grpc.aio.Channel
    data_plane: grpc.aio.Channel
    admin: AdminStub
    port: int
    keepers: KeepersService
    placement: Placement
    records: Records
    events: FleetEvents
    tls_port: int
    """Where it speaks TLS, if it was given credentials; the other port never does."""
    not_ready: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    policy: AddressPolicy = field(default_factory=lambda: AddressPolicy.of(("0.0.0.0/0", "::/0")))

    def name(self, *specs: EndpointSpec) -> None:
        """The settings name these endpoints."""
        self.dispatcher.set_members("settings", specs, time.monotonic())

    def observe(
        self,
        address: str,
        slots: int = 1,
        busy_slots: int = 0,
        status: ScrapeStatus = ScrapeStatus.READY,
        models: tuple[ModelReading, ...] = (),
        issues: tuple[Issue, ...] = (),
    ) -> None:
        """A scrape at a server is in; it is repeated while a client that left may hold a slot, as
        the scraper does."""
        now = time.monotonic()
        observation = Observation(
            address=Address.parse(address),
            began_at=now,
            answered_at=now,
            status=status,
            slots=slots,
            busy_slots=busy_slots,
            models=models,
            issues=issues,
        )
        self.dispatcher.observe(observation, now)
        endpoint = self.dispatcher.fleet.get(observation.address)
        if (
            endpoint is None
            or not self.dispatcher.ledger.endpoint_slots(endpoint.address).has_draining
        ):
            return
        again = partial(self.observe, address, slots, busy_slots, status, models, issues)
        asyncio.get_running_loop().call_later(AGAIN_S, again)

    def add_ready(self, address: str, slots: int = 1, name: str = "") -> None:
        """One more endpoint in the settings, ready."""
        known = self.dispatcher.fleet.specs_of("settings").values()
        self.name(*known, EndpointSpec(address=Address.parse(address), name=name))
        self.observe(address, slots)

    async def ask(
        self,
        request_id: str,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        *,
        has_body: bool = False,
    ) -> Stream:
        """Send a request's headers as Envoy does, and wait until the picker knows it, others
        has its id; with a body it waits for that."""
        before = {exchange.id for exchange in self.registry}

        def is_known() -> bool:
            found = self.registry.find(request_id, time.monotonic())
            return any(exchange.id not in before for exchange, _ in found)

        call = ExternalProcessorStub(self.data_plane).Process()
        message = ext_proc.ProcessingRequest()
        own = {":method": "POST", ":path": path, "x-request-id": request_id}
        for key, value in {**own, **(headers or {})}.items():
            message.request_headers.headers.headers.add(key=key, raw_value=value.encode())
        message.request_headers.end_of_stream = not has_body
        message.protocol_config.SetInParent()  # it is an Envoy's
        await call.write(message)
        await until(is_known)
        return call


@asynccontextmanager
async def running_picker(
    queue_max_requests: int = 10,
    interceptors: tuple[grpc.aio.ServerInterceptor, ...] = (),
    credentials: grpc.ServerCredentials | None = None,
    resolver: ResolverOptions | None = None,
    exchange: ExchangeOptions | None = None,
    read_usage: ReadUsage | None = None,
    places_models: bool = False,
    processes: Callable[[], Processes] | None = None,
    record_settings: RecordsSettings | None = None,
) -> AsyncIterator[FakePicker]:
    """A picker on a free loopback port, and a client of it."""
    pending_streams = PendingStreams()
    options = DispatcherOptions(
        queue=QueueLimits(max_requests=queue_max_requests), resolver=resolver or ResolverOptions()
    )
    dispatcher = listen(Dispatcher(Random(1), options), Surface(pending_streams))
    registry = ExchangeRegistry()
    processor = ExternalProcessor(
        dispatcher,
        pending_streams,
        registry,
        exchange or ExchangeOptions(),
        time.monotonic,
        lambda record: records.request_ended(record),  # noqa: PLW0108  # `records` come later
    )
    records = Records(record_settings or RecordsSettings(), dispatcher, registry)
    events = FleetEvents()
    settings = FakeSettings()
    added = FakeAdded(dispatcher)
    keepers = KeepersService(
        KeepersDependencies(
            clock=time.monotonic,
            changed=lambda machine: placement.changed(machine) if places_models else None,
            forgotten=lambda machine: placement.forgotten(machine) if places_models else None,
        )
    )
    placement = Placement(dispatcher, keepers.want, time.monotonic, PlacementOptions())
    not_ready: list[str] = []
    problems: list[str] = []
    outcomes: dict[str, int] = {}
    admin = AdminService(
        AdminDependencies(
            dispatcher=dispatcher,
            registry=registry,
            clock=time.monotonic,
            settings=settings,
            added=added,
            explain=lambda inquiry: dry_run(
                dispatcher, processor.options, inquiry, time.monotonic()
            ),
            envoys=lambda: [ConnectedEnvoy(node_id="envoy-1", acknowledged_version=3)],
            address_rejection=lambda address, peer: fake.policy.rejection(address, peer),  # noqa: PLW0108  # `fake` comes later
            obstacles=lambda: tuple(not_ready),
            problems=lambda: problems,
            outcomes=lambda: outcomes,
            bypassed=lambda: 0,
            takes_actions=lambda: False,
            version="1.2.3",
            started_at=time.monotonic(),
            keepers=keepers,
            read_usage=read_usage,
            placement=placement,
            processes=processes,
            records=records,
            events=events,
        )
    )
    health = Health()
    server = grpc.aio.server(interceptors=interceptors)
    table: ServiceTable = {}
    processor.add_to(table)
    health.add_to(table)
    add_health(server, health)
    admin.add_to(server)
    keepers.add_to(server)
    add_reflection(server, (ADMIN_SERVICE, HEALTH_SERVICE))
    port = server.add_insecure_port("127.0.0.1:0")
    tls_port = 0
    if credentials is not None:
        tls_port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            serving(table) as data_port,
            grpc.aio.insecure_channel(f"127.0.0.1:{data_port}") as data_plane,
        ):
            fake = FakePicker(
                dispatcher=dispatcher,
                registry=registry,
                settings=settings,
                added=added,
                keepers=keepers,
                placement=placement,
                health=health,
                channel=channel,
                data_plane=data_plane,
                admin=AdminStub(channel),
                port=port,
                tls_port=tls_port,
                not_ready=not_ready,
                problems=problems,
                outcomes=outcomes,
                records=records,
                events=events,
            )
            records.start()
            yield fake
    finally:
        await records.aclose()
        placement.stop()
        await server.stop(None)
