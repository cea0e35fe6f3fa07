"""Claims about extproc/admin/external_scaler.py, with a client that behaves as KEDA's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random

import grpc
import pytest

from extproc.admin.external_scaler import METRIC, ExternalScaler
from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import Settled
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.core.scaling.wanted import ScaleOptions, ServerBounds
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.pb import externalscaler_pb2 as pb
from extproc.pb.externalscaler_pb2_grpc import ExternalScalerStub
from tests.fakes.keda import Keda
from tests.fakes.picker import until

QWEN = ModelReading(name="qwen", aliases=("chat",))
SPEED = 100.0
"""Times of the core pass so much faster."""
SCALE = ScaleOptions(
    idle_s=20.0, down_after_s=50.0, models={"qwen": ServerBounds(max_servers=5, slots=2)}
)


def core_time() -> float:
    return SPEED * time.monotonic()


@dataclass
class Fleet:
    """A core whose servers are Pods of 2 slots: they come and go with the replicas."""

    scale: ScaleOptions = SCALE
    objectives: Objectives = field(default_factory=Objectives)

    def __post_init__(self) -> None:
        resolver = ResolverOptions(objectives=self.objectives)
        options = DispatcherOptions(
            resolver=resolver, scale=self.scale, health=HealthOptions(stale_after_s=1e9)
        )
        self.dispatcher = Dispatcher(Random(1), options)
        self.leases: list[Lease] = []
        self.replicas = 0
        if self.scale.models:
            readings = dict.fromkeys(("qwen", "chat"), QWEN)
            self.dispatcher.set_loadable("settings", readings, core_time())

    def resize(self, replicas: int) -> None:
        now = core_time()
        self.replicas = replicas
        addresses = [Address.of("10.0.0.1", 8000 + number) for number in range(replicas)]
        specs = [EndpointSpec(address=address) for address in addresses]
        self.dispatcher.set_members("pods", specs, now)
        for address in addresses:
            leases = self.dispatcher.view.slots_at(address).leases
            observation = Observation(
                address=address,
                began_at=now,
                answered_at=now,
                status=ScrapeStatus.READY,
                slots=2,
                busy_slots=len(leases),
                models=(QWEN,),
            )
            self.dispatcher.observe(observation, now)
        self.take()

    def ask(self, model: str = "qwen", objective: str | None = None) -> None:
        request = Request(id="r", timeout_s=1e6, model=model, objective=objective)
        decision = self.dispatcher.submit(request, core_time())
        assert isinstance(decision, Picked | Queued)
        if isinstance(decision, Picked):
            self.leases.append(decision.lease)

    def take(self) -> None:
        for event in self.dispatcher.take_events():
            if isinstance(event, Settled) and isinstance(event.settlement, Picked):
                self.leases.append(event.settlement.lease)

    def end_all(self) -> None:
        while self.leases:
            lease = self.leases.pop()
            now = core_time()
            self.dispatcher.responded(lease, now, is_stream=False)
            self.dispatcher.release(lease, LeaseEnd.SERVED, now)
            self.take()


@asynccontextmanager
async def serving(fleet: Fleet, port: int = 0) -> AsyncIterator[int]:
    """Its external scaler on a port, ten times as watchful."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    scaler = ExternalScaler(fleet.dispatcher, core_time, check_s=0.05, repeat_s=0.1)
    scaler.add_to(server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    assert bound
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


@contextmanager
def running(keda: Keda, *, has_push: bool = True) -> Iterator[None]:
    task = asyncio.create_task(keda.run(has_push=has_push))
    try:
        yield
    finally:
        task.cancel()


def channel_to(port: int) -> grpc.aio.Channel:
    options = (("grpc.max_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)


async def test_from_zero_and_back() -> None:
    """A pushed true starts the first server; polls follow the number up, and to zero."""
    fleet = Fleet()
    async with serving(fleet) as port, channel_to(port) as channel:
        keda = Keda(channel=channel, metadata={"model": "qwen"}, scaled=fleet.resize, polling_s=0.3)
        with running(keda):
            await until(lambda: keda.polls >= 2)
            assert keda.replicas == 0 and keda.pushes == 0
            fleet.ask()
            await until(lambda: len(fleet.leases) == 1)
            assert keda.pushes >= 1
            await asyncio.sleep(0.4)  # the time of a request that the core learns
            fleet.end_all()
            for _ in range(8):
                fleet.ask()
            # Of how many the core speaks depends on how soon it is asked.
            await until(lambda: keda.replicas > 1)
            assert len(fleet.leases) == min(8, 2 * keda.replicas)
            before = keda.pushes
            await until(lambda: keda.pushes > before + 3)
            fleet.end_all()
            await until(lambda: keda.replicas == 0)
    assert keda.errors == []


async def test_without_push_polls_alone_do_it() -> None:
    """A trigger of type `external`."""
    fleet = Fleet()
    async with serving(fleet) as port, channel_to(port) as channel:
        keda = Keda(channel=channel, metadata={"model": "chat"}, scaled=fleet.resize, polling_s=0.1)
        with running(keda, has_push=False):
            fleet.ask()
            await until(lambda: len(fleet.leases) == 1 and keda.replicas == 1)
            fleet.end_all()
            await until(lambda: keda.replicas == 0)
    assert keda.pushes == 0 and keda.errors == []


async def test_it_finds_a_restarted_picker() -> None:
    """While the picker is away the replicas stay as they are."""
    fleet = Fleet()
    async with serving(fleet) as port:
        pass
    async with channel_to(port) as channel:
        keda = Keda(channel=channel, metadata={"model": "qwen"}, scaled=fleet.resize, polling_s=0.1)
        with running(keda):
            async with serving(fleet, port):
                fleet.ask()
                await until(lambda: keda.replicas == 1)
            errors = len(keda.errors)
            await until(lambda: len(keda.errors) >= errors + 3)
            assert keda.replicas == 1
            pushes, polls = keda.pushes, keda.polls
            async with serving(fleet, port):
                await until(lambda: keda.pushes > pushes and keda.polls > polls)
    assert set(keda.errors) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_metadata_choose_what_counts() -> None:
    """`objective` counts its requests only, `target` divides, without `model` all of them count."""
    named = {"voice": Objective(name="voice", queue_s=0.1)}
    both = {**SCALE.models, "coder": ServerBounds(min_servers=3)}
    fleet = Fleet(
        scale=ScaleOptions(idle_s=6000.0, models=both), objectives=Objectives(by_name=named)
    )
    fleet.resize(1)
    coder = {"coder": ModelReading(name="coder", is_loaded=False)}
    fleet.dispatcher.set_loadable("test", coder, core_time())
    fleet.ask()
    async with serving(fleet) as port, channel_to(port) as channel:
        stub = ExternalScalerStub(channel)

        async def value(**metadata: str) -> float:
            ref = pb.ScaledObjectRef(scalerMetadata=metadata)
            answer = await stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref))
            (one,) = answer.metricValues
            assert one.metricValue == one.metricValueFloat and one.metricName == METRIC
            return one.metricValueFloat

        assert await value(model="qwen") == 1 and await value(model="coder") == 3
        assert await value() == 4
        assert await value(model="qwen", objective="voice") == 1
        keda = Keda(channel=channel, metadata={"model": "coder", "target": "1.5"})
        spec = await keda.spec()
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 2, 1.5)
        with running(keda):
            await until(lambda: keda.replicas == 2)
        stream = stub.StreamMetricSpec(pb.ScaledObjectRef())
        first = await stream.read()
        assert isinstance(first, pb.GetMetricSpecResponse)
        assert first.metricSpecs[0].targetSizeFloat == 1.0
        stream.cancel()


async def test_requests_for_a_model_that_nobody_has_reported_count() -> None:
    """After a start of the picker, without `scale.models`. What the name means does not change."""
    fleet = Fleet(scale=ScaleOptions(idle_s=20.0))
    fleet.ask("qwen")
    async with serving(fleet) as port, channel_to(port) as channel:
        stub = ExternalScalerStub(channel)
        for name, is_active in (("qwen", True), ("coder", False)):
            ref = pb.ScaledObjectRef(scalerMetadata={"model": name})
            assert (await stub.IsActive(ref)).result is is_active
    assert not fleet.dispatcher.resolver.models.is_known("qwen")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"target": "0"}, "target"),
        ({"target": "many"}, "target"),
        ({"target": "nan"}, "target"),
        ({"model": "x" * 1000}, "model"),
        ({"objective": "a\nb"}, "objective"),
    ],
)
async def test_wrong_metadata_are_named(metadata: dict[str, str], named: str) -> None:
    async with serving(Fleet()) as port, channel_to(port) as channel:
        stub = ExternalScalerStub(channel)
        ref = pb.ScaledObjectRef(scalerMetadata=metadata)
        for call in (stub.IsActive, stub.GetMetricSpec):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(ref)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"metadata.{named}" in (caught.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.StreamIsActive(ref).read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_names_and_numbers_are_kedas() -> None:
    """Both ends must agree on them."""
    file = pb.DESCRIPTOR
    assert file.package == "externalscaler"
    assert [method.name for method in file.services_by_name["ExternalScaler"].methods] == [
        *("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec")
    ]
    numbers = {
        name: {field.name: field.number for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert numbers == {
        "ScaledObjectRef": {"name": 1, "namespace": 2, "scalerMetadata": 3},
        "IsActiveResponse": {"result": 1},
        "GetMetricSpecResponse": {"metricSpecs": 1},
        "MetricSpec": {"metricName": 1, "targetSize": 2, "targetSizeFloat": 3},
        "GetMetricsRequest": {"scaledObjectRef": 1, "metricName": 2},
        "GetMetricsResponse": {"metricValues": 1},
        "MetricValue": {"metricName": 1, "metricValue": 2, "metricValueFloat": 3},
    }
