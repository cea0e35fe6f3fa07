"""What watching costs: exchanges a second with telemetry off, at 1 % and at 100 %."""

import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc

from bench import load, rig
from bench.process import cpu_seconds
from bench.result import Row, Section, at_least, none_of
from extproc.demo.port import LOOPBACK
from extproc.demo.process import Children

ROUNDS = 15
ROUND_S = 1.5
"""Short ones: only what ran within seconds of each other can be compared."""
CONNECTIONS = 32
EXPORT = "opentelemetry.proto.collector.{}.v1.{}Service"
KINDS = {"off": None, "1 %": "0.01", "100 %": "1"}


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


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """For the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def measure(say: Callable[[str], None]) -> Section:
    """Alternate between three pickers before the same server; all write a line a request."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _receiver() as receiver, Children(folder) as children:
            server = (await rig.start_stand_ins(children, folder, 1, 256))[0]
            ports: dict[str, int] = {}
            pids: dict[str, int] = {}
            for kind, share in KINDS.items():
                traced = {
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{LOOPBACK}:{receiver}",
                    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                    "OTEL_TRACES_SAMPLER_ARG": share or "0",
                    "OTEL_METRIC_EXPORT_INTERVAL": "1000",
                }
                with _environment(**(traced if share else {})):
                    child, picker = await rig.start_picker(children, folder, [server])
                pids[kind] = child.pid
                ports[kind] = await rig.start_envoy(children, folder, picker)
            for port in ports.values():
                await load.run(port, CONNECTIONS, 1.0)
            runs: dict[str, list[load.Load]] = {kind: [] for kind in ports}
            spent_us: dict[str, list[float]] = {kind: [] for kind in ports}
            for number in range(ROUNDS):
                for kind, port in ports.items():
                    say(f"telemetry: round {number + 1} of {ROUNDS}, {kind}")
                    before_s = cpu_seconds(pids[kind])
                    run = await load.run(port, CONNECTIONS, ROUND_S)
                    used_s = cpu_seconds(pids[kind]) - before_s
                    spent_us[kind].append(1e6 * used_s / run.requests)
                    runs[kind].append(run)
    shares = {
        kind: statistics.median(
            one.rate / off.rate for one, off in zip(runs[kind], runs["off"], strict=True)
        )
        for kind in runs
    }
    rate = {kind: statistics.median(one.rate for one in of) for kind, of in runs.items()}
    p99 = {kind: statistics.median(one.p99_ms for one in of) for kind, of in runs.items()}
    cost = {kind: statistics.median(of) for kind, of in spent_us.items()}
    failures = sum(one.failures for of in runs.values() for one in of)
    return Section(
        title="Telemetry",
        method=f"{CONNECTIONS} connections, medians of {ROUNDS} rounds of "
        f"{ROUND_S:g} s for each picker in turn, through Envoy with one worker; "
        "traces and metrics go to an OTLP receiver over gRPC; metrics for Prometheus and a log "
        "line for each request are always on",
        rows=(
            *(Row(what=f"exchanges/s, tracing {kind}", value=f"{rate[kind]:.0f}") for kind in rate),
            at_least("rate, tracing 1 % to off", shares["1 %"], 0.95),
            at_least("rate, tracing 100 % to off", shares["100 %"], 0.8),
            *(
                Row(what=f"CPU time per exchange, tracing {kind}", value=f"{cost[kind]:.0f} us")
                for kind in cost
            ),
            *(Row(what=f"p99, tracing {kind}", value=f"{p99[kind]:.2f} ms") for kind in p99),
            none_of("failed requests", failures),
        ),
    )
