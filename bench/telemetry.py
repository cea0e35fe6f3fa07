"""What watching costs: exchanges a second with telemetry off, at 1 % and at 100 %."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bench.result import Row, Say, Section, at_least, measured, none_of
from bench.rig import Rig
from bench.rounds import CONNECTIONS, Contender, failed, take_turns
from extproc.demo.port import LOOPBACK

ROUNDS = 15
ROUND_S = 1.5
EXPORT = "opentelemetry.proto.collector.{}.v1.{}Service"
KINDS = {"off": "", "1 %": "0.01", "100 %": "1"}


@asynccontextmanager
async def _receiver() -> AsyncIterator[int]:
    """An OTLP receiver that takes everything and reads nothing, so that it costs little here."""

    async def export(_: bytes, __: object) -> bytes:
        return b""

    handler: Any = grpc.unary_unary_rpc_method_handler(export)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(EXPORT.format(*names), {"Export": handler})
            for names in (("trace", "Trace"), ("metrics", "Metrics"))
        )
    )
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    yield port
    await server.stop(None)


async def measure(say: Say) -> Section:
    """Alternate between three pickers before the same server; all write a line a request."""
    contenders = []
    async with _receiver() as receiver, Rig() as rig:
        (server,) = await rig.start_stand_ins(1, 256)
        for kind, share in KINDS.items():
            traced = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{LOOPBACK}:{receiver}",
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": share,
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            }
            environment = {**os.environ, **(traced if share else {})}
            picker = await rig.start_picker([server], {}, environment=environment)
            envoy = await rig.start_envoy(picker.port)
            parts = {"picker": [picker.child.pid]}
            contenders.append(Contender(name=kind, port=envoy.port, parts=parts))
        await take_turns("telemetry", contenders, ROUNDS, ROUND_S, say)
    off, some, every = contenders
    return Section(
        title="Telemetry",
        method=f"{CONNECTIONS} connections, medians of {ROUNDS} rounds of "
        f"{ROUND_S:g} s for each picker in turn, through Envoy with one worker; "
        "traces and metrics go to an OTLP receiver over gRPC; metrics for Prometheus and a log "
        "line for each request are always on",
        rows=(
            *(
                Row(what=f"exchanges/s, tracing {one.name}", value=f"{one.rate:.0f}")
                for one in contenders
            ),
            at_least("rate, tracing 1 % to off", some.rate_to(off), 0.95),
            at_least("rate, tracing 100 % to off", every.rate_to(off), 0.8),
            *(
                measured(
                    f"CPU time per exchange, tracing {one.name}", one.cost_us("picker"), " us", 0
                )
                for one in contenders
            ),
            *(
                Row(what=f"p99, tracing {one.name}", value=f"{one.p99_ms:.2f} ms")
                for one in contenders
            ),
            none_of("failed requests", failed(contenders)),
        ),
    )
