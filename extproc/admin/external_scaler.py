"""KEDA's external scaler: how many servers a model needs, asked for or pushed.

KEDA sends no token. The calls read numbers and change nothing, not even what a name means.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc

from extproc.admin import arguments
from extproc.admin.call_errors import Context, at_limit, invalid, maps_errors
from extproc.admin.handlers import handlers_of
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.pb import externalscaler_pb2 as pb
from extproc.pb.externalscaler_pb2_grpc import ExternalScalerServicer

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["ExternalScaler"]
SERVICE: Final[str] = DESCRIPTOR.full_name
METRIC: Final = "coxswain-wanted-servers"
CHECK_S: Final = 0.5
"""How often a stream looks for demand: KEDA itself polls every 30 s."""
REPEAT_S: Final = 5.0
"""How often it repeats that there is demand: KEDA may have missed it."""
MAX_STREAMS: Final = 1000
MAX_CHARS: Final = 256
MAX_TARGET: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What a trigger of KEDA asks for, from its metadata."""

    model: str = ""
    objective: str = ""
    pool: str = ""
    target: float = 1.0


def read_trigger(ref: pb.ScaledObjectRef) -> Trigger:
    """The trigger of a call; raises `CallError`. KEDA sends all of its metadata, also its own."""
    metadata = ref.scalerMetadata
    model, objective = metadata.get("model", ""), metadata.get("objective", "")
    pool = metadata.get("pool", "")
    for name, text in (("model", model), ("objective", objective), ("pool", pool)):
        if len(text) > MAX_CHARS or not text.isprintable():
            raise invalid(f"metadata.{name}: at most {MAX_CHARS} printable characters")
    try:
        target = float(metadata.get("target", "") or "1")
    except ValueError:
        target = math.nan
    if not 0 < target <= MAX_TARGET:
        raise invalid("metadata.target: a number above 0, the wanted servers of one replica")
    return Trigger(model=model, objective=objective, pool=pool, target=target)


class ExternalScaler(ExternalScalerServicer):
    """`externalscaler.ExternalScaler`. Each call is O(models), a stream the same twice a second."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        *,
        check_s: float = CHECK_S,
        repeat_s: float = REPEAT_S,
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._check_s = check_s
        self._repeat_s = repeat_s
        self._streams = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        server.add_generic_rpc_handlers((handlers_of(DESCRIPTOR, self),))

    def wanted(self, trigger: Trigger) -> int:
        """The servers that the trigger's model needs in its pool, the default one if it names none,
        or without a model all models together, of all pools if it names none. Raises `CallError`
        for an unknown pool."""
        view = self._dispatcher.view
        pool = arguments.find_pool(view.pools, trigger.pool)
        name = view.name_to_scale(trigger.model, pool) if trigger.model else ""
        found = view.scale(self._clock(), trigger.objective or None, (name,) if name else ())
        if name:
            return found[view.canonical_in_pool(name)].wanted
        return sum(one.wanted for one in found.values() if pool in ("", one.pool))

    @maps_errors
    async def IsActive(  # noqa: N802  # gRPC names it
        self, request: pb.ScaledObjectRef, _: Context
    ) -> pb.IsActiveResponse:
        return pb.IsActiveResponse(result=self.wanted(read_trigger(request)) > 0)

    @maps_errors
    async def StreamIsActive(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> None:
        trigger = read_trigger(request)
        self._enter()
        try:
            was_active, quiet_s = False, 0.0
            while True:
                is_active = self.wanted(trigger) > 0
                if is_active is not was_active or (is_active and quiet_s >= self._repeat_s):
                    await context.write(pb.IsActiveResponse(result=is_active))
                    was_active, quiet_s = is_active, 0.0
                await asyncio.sleep(self._check_s)
                quiet_s += self._check_s
        finally:
            self._streams -= 1

    @maps_errors
    async def GetMetricSpec(  # noqa: N802
        self, request: pb.ScaledObjectRef, _: Context
    ) -> pb.GetMetricSpecResponse:
        return _spec(read_trigger(request))

    @maps_errors
    async def StreamMetricSpec(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> None:
        spec = _spec(read_trigger(request))
        self._enter()
        try:
            await context.write(spec)
            await asyncio.Event().wait()  # it never changes
        finally:
            self._streams -= 1

    @maps_errors
    async def GetMetrics(  # noqa: N802
        self, request: pb.GetMetricsRequest, _: Context
    ) -> pb.GetMetricsResponse:
        value = self.wanted(read_trigger(request.scaledObjectRef))
        return pb.GetMetricsResponse(
            metricValues=[
                pb.MetricValue(
                    metricName=request.metricName or METRIC,
                    metricValue=value,
                    metricValueFloat=float(value),
                )
            ]
        )

    def _enter(self) -> None:
        if self._streams >= MAX_STREAMS:
            raise at_limit(f"{MAX_STREAMS} streams are open already")
        self._streams += 1


def _spec(trigger: Trigger) -> pb.GetMetricSpecResponse:
    return pb.GetMetricSpecResponse(
        metricSpecs=[
            pb.MetricSpec(
                metricName=METRIC,
                targetSize=math.ceil(trigger.target),
                targetSizeFloat=trigger.target,
            )
        ]
    )
