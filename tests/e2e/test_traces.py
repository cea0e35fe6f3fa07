"""Traces over the real Envoy and the picker's own process, read back from an OTLP receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from extproc.demo.port import LOOPBACK
from tests.e2e.stack import Stack
from tests.fakes.otlp_receiver import OtlpReceiver, otlp_receiver, text_attributes

pytestmark = pytest.mark.e2e

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{CALLER}-01"


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    """A receiver to which the processes of the test send, soon."""
    async with otlp_receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.grpc_url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        yield running


def settings(receiver: OtlpReceiver, *, envoy_traces: bool = True) -> dict[str, Any]:
    collector = f"{LOOPBACK}:{receiver.grpc_port}" if envoy_traces else None
    return {
        "scraper": {"slow_interval_s": 0.5},
        "log": {"format": "json"},
        "envoy": {"tracing": collector},
    }


def named(spans: list[Span], name: str, trace_id: str = TRACE_ID) -> list[Span]:
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
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    """The picker's span hangs below Envoy's, and Envoy's below the caller's."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=settings(receiver), kind="simulator"
    ) as stack:
        answer = await stack.ask(headers={"traceparent": TRACEPARENT, "x-request-id": "traced-1"})
        assert answer.status_code == 200

        def is_whole() -> bool:
            spans = receiver.spans()
            exchanges = named(spans, "coxswain.exchange")
            has_pick = bool(named(spans, "coxswain.pick"))
            return has_pick and all(CALLER in ancestors(one, spans) for one in exchanges)

        await receiver.until(is_whole)
        spans = receiver.spans()
        (exchange,) = named(spans, "coxswain.exchange")
        (pick,) = named(spans, "coxswain.pick")
        (ingress,) = named(spans, "ingress")
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


async def test_a_wait_is_a_span_of_its_own(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """A request that had to wait has a `coxswain.queue` span that ends before its exchange."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=settings(receiver, envoy_traces=False), kind="simulator"
    ) as stack:
        held = await stack.hold()
        waiting = asyncio.create_task(stack.ask(headers={"traceparent": TRACEPARENT}))
        await stack.until_waiting(1)
        await held.leave()
        assert (await waiting).status_code == 200
        await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.queue")))
        (queue,) = named(receiver.spans(), "coxswain.queue")
        (exchange,) = named(receiver.spans(), "coxswain.exchange")
        assert exchange.parent_span_id.hex() == CALLER, "without Envoy's tracer the caller is next"
        assert queue.parent_span_id == exchange.span_id
        assert exchange.start_time_unix_nano <= queue.start_time_unix_nano
        assert queue.start_time_unix_nano < queue.end_time_unix_nano
        assert queue.end_time_unix_nano <= exchange.end_time_unix_nano


async def test_the_callers_no_is_respected(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """A request whose caller did not sample is counted, and not traced."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=settings(receiver, envoy_traces=False), kind="simulator"
    ) as stack:
        unsampled = f"00-{TRACE_ID}-{CALLER}-00"
        assert (await stack.ask(headers={"traceparent": unsampled})).status_code == 200
        later = "11111111111111111111111111111111"
        await stack.ask(headers={"traceparent": f"00-{later}-{CALLER}-01"})
        await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.exchange", later)))
        assert not named(receiver.spans(), "coxswain.exchange")


async def test_the_request_line_carries_the_trace(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """The JSON line of a request and its trace name each other."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=settings(receiver), kind="simulator"
    ) as stack:
        await stack.ask(headers={"traceparent": TRACEPARENT, "x-request-id": "logged-1"})
        await receiver.until(lambda: bool(named(receiver.spans(), "coxswain.exchange")))
        assert stack.picker is not None
        await stack.picker.stop()
        lines = [json.loads(line) for line in stack.picker.log.read_text().splitlines()]
        (line,) = [line for line in lines if line.get("request_id") == "logged-1"]
        assert line["trace_id"] == TRACE_ID
        assert line["outcome"] == "served" and line["endpoint"] == stack.servers[0].address
        assert line["queue_ms"] == 0 and line["status"] == 200


async def test_a_receiver_that_hangs_slows_nothing(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the receiver answers nobody, requests are served, and what is lost is counted."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    receiver.answers.clear()
    async with Stack.running(
        tmp_path, slots=(4,), settings=settings(receiver, envoy_traces=False), kind="simulator"
    ) as stack:

        async def ask_many() -> None:
            for _ in range(200):
                assert (await stack.ask()).status_code == 200

        await asyncio.gather(*(ask_many() for _ in range(4)))
        await stack.until(lambda status: status["exchanges"] == 0)  # or some are not counted yet
        metrics = await stack.client.get(f"http://{LOOPBACK}:{stack.http_port}/metrics")
        served = 'coxswain_requests_total{outcome="served",class="standard"}'
        (line,) = [line for line in metrics.text.splitlines() if line.startswith(served)]
        assert float(line.split()[-1]) >= 800
        dropped = 'coxswain_telemetry_dropped_total{signal="spans"}'
        (line,) = [line for line in metrics.text.splitlines() if line.startswith(dropped)]
        assert float(line.split()[-1]) >= 800
        assert stack.picker is not None
        await stack.picker.stop()
        receiver.answers.set()


async def test_metrics_arrive_at_the_receiver(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """The receiver gets the same numbers that `/metrics` shows."""
    async with Stack.running(
        tmp_path, slots=(2,), settings=settings(receiver, envoy_traces=False), kind="simulator"
    ) as stack:
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
