"""Traces over the real Envoy and the picker's own process, read back from an OTLP receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from extproc.demo.port import LOOPBACK
from tests.e2e.pool import assert_calm, shares
from tests.e2e.stack import Stack, until
from tests.fakes.otlp_receiver import OtlpReceiver, otlp_receiver, text_attributes

pytestmark = shares("traces")

CALLER = "b7ad6b7169203331"
CLIENTS, REQUESTS = 4, 100


@pytest.fixture
def trace_id() -> str:
    """One of this test."""
    return uuid4().hex


def traceparent(trace_id: str, *, is_sampled: bool = True) -> str:
    return f"00-{trace_id}-{CALLER}-{'01' if is_sampled else '00'}"


@dataclass
class Traced:
    """A stack whose processes send to a receiver, soon."""

    stack: Stack
    receiver: OtlpReceiver


@asynccontextmanager
async def traced(
    folder: Path, *, envoy_traces: bool, environment: dict[str, str] | None = None
) -> AsyncIterator[Traced]:
    with pytest.MonkeyPatch.context() as patch:
        async with otlp_receiver() as receiver:
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.grpc_url)
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            told = settings(receiver, envoy_traces=envoy_traces)
            async with Stack.running(folder, slots=(2,), settings=told, kind="simulator") as stack:
                yield Traced(stack, receiver)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def by_envoy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    """Envoy traces, too."""
    async with traced(tmp_path_factory.mktemp("by_envoy"), envoy_traces=True) as running:
        yield running
        await assert_calm(running.stack, running.stack.pids())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def by_picker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    """The picker alone traces."""
    async with traced(tmp_path_factory.mktemp("by_picker"), envoy_traces=False) as running:
        yield running
        await assert_calm(running.stack, running.stack.pids())


def settings(receiver: OtlpReceiver, *, envoy_traces: bool = True) -> dict[str, Any]:
    collector = f"{LOOPBACK}:{receiver.grpc_port}" if envoy_traces else None
    return {
        "scraper": {"slow_interval_s": 0.5},
        "log": {"format": "json"},
        "envoy": {"tracing": collector},
    }


def named(spans: list[Span], name: str, trace_id: str) -> list[Span]:
    return [span for span in spans if span.name == name and span.trace_id.hex() == trace_id]


def ancestors(span: Span, spans: list[Span]) -> list[str]:
    """The span ids above `span`, the nearest first, the caller's included."""
    by_id = {one.span_id: one for one in spans}
    above: list[str] = []
    here: Span | None = span
    while here is not None and here.parent_span_id:
        above.append(here.parent_span_id.hex())
        here = by_id.get(here.parent_span_id)
    return above


async def test_one_trace_holds_caller_envoy_and_picker_in_this_order(
    by_envoy: Traced, trace_id: str
) -> None:
    """The picker's span hangs below Envoy's, and Envoy's below the caller's. The JSON line of the
    request and its trace name each other."""
    stack, receiver = by_envoy.stack, by_envoy.receiver
    headers = {"traceparent": traceparent(trace_id), "x-request-id": "traced-1"}
    assert (await stack.ask(headers=headers)).status_code == 200

    def is_whole() -> bool:
        spans = receiver.spans()
        exchanges = named(spans, "coxswain.exchange", trace_id)
        has_pick = bool(named(spans, "coxswain.pick", trace_id))
        return has_pick and all(CALLER in ancestors(one, spans) for one in exchanges)

    await receiver.until(is_whole)
    spans = receiver.spans()
    (exchange,) = named(spans, "coxswain.exchange", trace_id)
    (pick,) = named(spans, "coxswain.pick", trace_id)
    (ingress,) = named(spans, "ingress", trace_id)
    above = ancestors(exchange, spans)
    assert above[-1] == CALLER, "the caller is the root"
    assert above[-2] == ingress.span_id.hex(), "Envoy's span is the caller's child"
    assert len(above) == 3, "between them stands Envoy's own call of the picker"
    assert pick.parent_span_id == exchange.span_id
    attributes = text_attributes(exchange)
    assert attributes["coxswain.outcome"] == "served"
    assert attributes["coxswain.request.id"] == "traced-1"
    assert attributes["server.port"] == str(stack.servers[0].port)
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["http.response.status_code"] == "200"
    assert ingress.start_time_unix_nano <= exchange.start_time_unix_nano + 1_000_000
    assert exchange.start_time_unix_nano <= pick.start_time_unix_nano
    assert pick.end_time_unix_nano <= exchange.end_time_unix_nano

    line = await line_of(stack, "traced-1")
    assert line["trace_id"] == trace_id
    assert line["outcome"] == "served" and line["endpoint"] == stack.servers[0].address
    assert line["queue_ms"] == 0 and line["status"] == 200


async def line_of(stack: Stack, request_id: str) -> dict[str, Any]:
    """What the picker's log says of a request, as soon as it does."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        assert stack.picker is not None
        whole, _, _ = stack.picker.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        found[:] = [line for line in lines if line.get("request_id") == request_id]
        return bool(found)

    await until(is_there)
    (line,) = found
    return line


async def test_a_wait_is_a_span_of_its_own(by_picker: Traced, trace_id: str) -> None:
    """A request that had to wait has a `coxswain.queue` span that ends before its exchange."""
    stack, receiver = by_picker.stack, by_picker.receiver
    held = await stack.fill()
    waiting = asyncio.create_task(stack.ask(headers={"traceparent": traceparent(trace_id)}))
    await stack.until_waiting(1)
    for one in held:
        await one.leave()
    assert (await waiting).status_code == 200
    await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.queue", trace_id)))
    await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.exchange", trace_id)))
    (queue,) = named(receiver.spans(), "coxswain.queue", trace_id)
    (exchange,) = named(receiver.spans(), "coxswain.exchange", trace_id)
    assert exchange.parent_span_id.hex() == CALLER, "without Envoy's tracer the caller is next"
    assert queue.parent_span_id == exchange.span_id
    assert exchange.start_time_unix_nano <= queue.start_time_unix_nano
    assert queue.start_time_unix_nano < queue.end_time_unix_nano
    assert queue.end_time_unix_nano <= exchange.end_time_unix_nano


async def test_the_callers_no_is_respected(by_picker: Traced, trace_id: str) -> None:
    """A request whose caller did not sample is counted, and not traced."""
    stack, receiver = by_picker.stack, by_picker.receiver
    unsampled = traceparent(trace_id, is_sampled=False)
    assert (await stack.ask(headers={"traceparent": unsampled})).status_code == 200
    later = uuid4().hex
    await stack.ask(headers={"traceparent": traceparent(later)})
    await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.exchange", later)))
    assert not named(receiver.spans(), "coxswain.exchange", trace_id)


async def test_a_receiver_that_hangs_slows_nothing(tmp_path: Path) -> None:
    """While the receiver answers nobody, requests are served, and what is lost is counted."""
    async with traced(
        tmp_path, envoy_traces=False, environment={"OTEL_BSP_MAX_QUEUE_SIZE": "64"}
    ) as it:
        stack = it.stack
        it.receiver.answers.clear()

        async def ask_many() -> None:
            for _ in range(REQUESTS):
                assert (await stack.ask()).status_code == 200

        await asyncio.gather(*(ask_many() for _ in range(CLIENTS)))
        await stack.until(lambda status: status["exchanges"] == 0)  # or some are not counted yet
        metrics = await stack.client.get(f"http://{LOOPBACK}:{stack.http_port}/metrics")
        served = 'coxswain_requests_total{outcome="served",criticality="standard"}'
        (line,) = [line for line in metrics.text.splitlines() if line.startswith(served)]
        assert float(line.split()[-1]) >= CLIENTS * REQUESTS
        dropped = 'coxswain_telemetry_dropped_total{signal="spans"}'
        (line,) = [line for line in metrics.text.splitlines() if line.startswith(dropped)]
        assert float(line.split()[-1]) >= CLIENTS * REQUESTS
        assert stack.picker is not None
        await stack.picker.stop()
        it.receiver.answers.set()


async def test_metrics_arrive_at_the_receiver(by_picker: Traced) -> None:
    """The receiver gets the same numbers that `/metrics` shows."""
    stack, receiver = by_picker.stack, by_picker.receiver
    await stack.ask()

    def has_served() -> bool:
        requests = receiver.latest_metrics().get("coxswain_requests_total")
        return requests is not None and any(
            text_attributes(point)["outcome"] == "served" for point in requests.sum.data_points
        )

    def is_idle() -> bool:
        slots = receiver.latest_metrics()["coxswain_slots"].gauge.data_points
        by_state = {text_attributes(point)["state"]: point for point in slots}
        return by_state["idle"].as_double == 2 or by_state["idle"].as_int == 2

    await receiver.until(lambda: has_served() and is_idle())
