"""An autoscaler that behaves as KEDA 2.20 does with a trigger `external-push`.

After pkg/scalers/external_scaler.go and pkg/scaling/scale_handler.go: each poll asks GetMetrics and
IsActive; a pushed true scales from zero at once, a pushed false is ignored; a stream that ends is
opened again after 2 s, one that fails after 2 s that double up to 60 s; to zero it goes
`cooldown_s` after the last activity. From one replica on the HorizontalPodAutoscaler scales by the
metric: ceil(value / target), unless that changes less than a tenth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

import grpc

from extproc.pb import externalscaler_pb2 as pb
from extproc.pb.externalscaler_pb2_grpc import ExternalScalerStub

TOLERANCE = 0.1


@dataclass(kw_only=True)
class Keda:
    """One ScaledObject. `scaled` is called with each new number of replicas. All times are a
    hundredth of KEDA's."""

    channel: grpc.aio.Channel
    metadata: Mapping[str, str]
    scaled: Callable[[int], None] = lambda _: None
    max_replicas: int = 10
    polling_s: float = 0.3
    cooldown_s: float = 0.5
    retry_s: float = 0.02
    max_retry_s: float = 0.6
    replicas: int = 0
    pushes: int = 0
    errors: list[grpc.StatusCode] = field(default_factory=list)
    streams: int = 0
    polls: int = 0
    _active_at: float = 0.0

    def __post_init__(self) -> None:
        self._stub = ExternalScalerStub(self.channel)
        self._ref = pb.ScaledObjectRef(
            name="llama",
            namespace="default",
            scalerMetadata={"scalerAddress": "coxswain:9004", **self.metadata},
        )

    async def run(self, *, has_push: bool = True) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll())
            if has_push:
                tasks.create_task(self._follow())

    async def spec(self) -> pb.MetricSpec:
        """The metric, as the HorizontalPodAutoscaler is created with."""
        (spec,) = (await self._stub.GetMetricSpec(self._ref)).metricSpecs
        return spec

    async def _poll(self) -> None:
        while True:
            try:
                await self._poll_once()
                self.polls += 1
            except grpc.aio.AioRpcError as error:
                self.errors.append(error.code())
            await asyncio.sleep(self.polling_s)

    async def _poll_once(self) -> None:
        spec = await self.spec()
        asked = pb.GetMetricsRequest(scaledObjectRef=self._ref, metricName=spec.metricName)
        (value,) = (await self._stub.GetMetrics(asked)).metricValues
        assert value.metricName == spec.metricName
        is_active = (await self._stub.IsActive(self._ref)).result
        now = time.monotonic()
        if is_active:
            self._active_at = now
            self._set(max(1, self.replicas))
            per_replica = spec.targetSizeFloat or spec.targetSize
            number = value.metricValueFloat or value.metricValue  # a float above 0 wins
            wished = ceil(number / per_replica - 1e-9)
            if abs(wished / self.replicas - 1) > TOLERANCE:
                self._set(max(1, wished))
        elif now - self._active_at >= self.cooldown_s:
            self._set(0)

    async def _follow(self) -> None:
        retry_s = self.retry_s
        while True:
            self.streams += 1
            try:
                async for message in self._stub.StreamIsActive(self._ref):
                    retry_s = self.retry_s
                    if message.result:
                        self.pushes += 1
                        self._active_at = time.monotonic()
                        self._set(max(1, self.replicas))
            except grpc.aio.AioRpcError as error:
                self.errors.append(error.code())
            await asyncio.sleep(retry_s)
            retry_s = min(self.max_retry_s, 2 * retry_s)

    def _set(self, replicas: int) -> None:
        replicas = min(replicas, self.max_replicas)
        if replicas != self.replicas:
            self.replicas = replicas
            self.scaled(replicas)
