"""Claims about extproc/telemetry: hub, otlp and senders, against a real receiver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from random import Random

import pytest

from extproc.telemetry import otlp
from extproc.telemetry.environment import read_environment
from extproc.telemetry.hub import Telemetry, TelemetryOptions
from extproc.telemetry.metrics import TelemetrySources
from tests.fakes.otlp_receiver import OtlpReceiver, otlp_receiver, text_attributes
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as running:
        yield running


def telemetry_to(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, protocol: str, **more: str
) -> Telemetry:
    """Telemetry that sends to `receiver`, driven by nothing but the environment."""
    url = receiver.http_url if protocol == "http/protobuf" else receiver.grpc_url
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "30",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
        "OTEL_METRIC_EXPORT_INTERVAL": "10",
        **more,
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    fleet = SmallFleet(2)
    return Telemetry(
        fleet.dispatcher,
        TelemetrySources(running=lambda: 0, queue_depths=lambda: {"standard": 0}),
        TelemetryOptions(version="1.2.3", otlp=read_environment(environ)),
        clock=lambda: fleet.now,
        random=Random(1),
    )


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_both_protocols_carry_both_signals(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Spans and metrics arrive, with who we are and the headers that the environment asks for."""
    telemetry = telemetry_to(
        receiver,
        monkeypatch,
        protocol,
        OTEL_EXPORTER_OTLP_HEADERS="x-team=rowers",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
    )
    telemetry.start()
    assert telemetry.record(record(trace_parent=SAMPLED)) == TRACE_ID
    await receiver.until(lambda: bool(receiver.spans()) and bool(receiver.metrics))
    await telemetry.aclose()
    assert {span.trace_id.hex() for span in receiver.spans("coxswain")} == {TRACE_ID}
    resource = text_attributes(receiver.traces[0].resource_spans[0].resource)
    assert resource["service.version"] == "1.2.3"
    assert resource["deployment.environment.name"] == "test"
    assert "coxswain_slots" in receiver.latest_metrics()
    assert all(one["x-team"] == "rowers" for one in receiver.metadata)


async def test_the_service_may_be_named(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before our own words."""
    telemetry = telemetry_to(
        receiver,
        monkeypatch,
        "grpc",
        OTEL_SERVICE_NAME="steering",
        OTEL_RESOURCE_ATTRIBUTES="service.version=blue%202,service.name=other",
    )
    telemetry.start()
    telemetry.record(record(trace_parent=SAMPLED))
    await receiver.until(lambda: bool(receiver.spans("steering")))
    await telemetry.aclose()
    resource = text_attributes(receiver.traces[0].resource_spans[0].resource)
    assert resource["service.version"] == "blue 2"


async def test_what_is_left_goes_out_at_the_end(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing sends the last spans and the last numbers, whatever the intervals."""
    monkeypatch.setattr(otlp, "FLUSH_S", 30.0)  # that it is bounded is another claim
    telemetry = telemetry_to(
        receiver,
        monkeypatch,
        "grpc",
        OTEL_BSP_SCHEDULE_DELAY="3600000",
        OTEL_METRIC_EXPORT_INTERVAL="3600000",
    )
    telemetry.start()
    telemetry.record(record(trace_parent=SAMPLED))
    await telemetry.aclose()
    assert receiver.spans() and receiver.latest_metrics()


async def test_unsampled_requests_are_counted_and_not_sent(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that its caller did not sample still tells the trace that it belongs to."""
    telemetry = telemetry_to(receiver, monkeypatch, "grpc")
    telemetry.start()
    assert telemetry.record(record(trace_parent=SAMPLED[:-1] + "0")) == TRACE_ID
    await receiver.until(lambda: bool(receiver.metrics))
    await telemetry.aclose()
    assert not receiver.spans()
    assert "coxswain_requests_total" in receiver.latest_metrics()


async def test_a_receiver_that_is_gone_is_said_once(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it fails; what is lost is counted; nothing of the libraries is logged."""
    receiver.grpc_port = 1
    telemetry = telemetry_to(receiver, monkeypatch, "grpc", OTEL_EXPORTER_OTLP_TIMEOUT="1")

    def failing() -> list[str]:
        lines = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        return sorted(line.split()[0] for line in lines)

    telemetry.start()
    for _ in range(5):
        telemetry.record(record(trace_parent=SAMPLED))
    async with asyncio.timeout(30):
        # Both happen in other threads, which know no events of this loop.
        while (  # noqa: ASYNC110
            len(failing()) < 2
            or b'dropped_total{signal="spans"} 0\n' in await telemetry.prometheus()
        ):
            await asyncio.sleep(0.01)
    await telemetry.aclose()
    assert failing() == ["metrics", "traces"]


async def test_a_receiver_that_hangs_does_not_keep_us(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telling goes on at once, the queue stays bounded, and closing ends."""
    receiver.answers.clear()
    telemetry = telemetry_to(
        receiver,
        monkeypatch,
        "grpc",
        OTEL_EXPORTER_OTLP_TIMEOUT="3600",
        OTEL_BSP_MAX_QUEUE_SIZE="16",
    )
    telemetry.start()
    for _ in range(1000):
        telemetry.record(record(trace_parent=SAMPLED))
    text = (await telemetry.prometheus()).decode()
    assert 'coxswain_requests_total{outcome="served",criticality="standard"} 1000' in text
    (line,) = [one for one in text.splitlines() if 'dropped_total{signal="spans"}' in one]
    assert float(line.split()[-1]) >= 2900
    await telemetry.aclose()


async def test_without_an_endpoint_there_is_no_thread() -> None:
    """Nothing is loaded, started or sent."""
    before = set(threading.enumerate())
    telemetry = Telemetry(
        SmallFleet(1).dispatcher,
        TelemetrySources(running=lambda: 0, queue_depths=lambda: {"standard": 0}),
        TelemetryOptions(version="1.2.3"),
    )
    telemetry.start()
    assert telemetry.record(record()) == ""
    assert set(threading.enumerate()) <= before
    await telemetry.aclose()
