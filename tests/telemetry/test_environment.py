"""Claims about extproc/telemetry/environment.py."""

from __future__ import annotations

import pytest

from extproc.telemetry.environment import OtlpOptions, Protocol, read_environment
from extproc.telemetry.trace_context import Sampling

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


def test_silent_without_an_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else is set: without an endpoint nothing is exported and nothing is said."""
    others = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    nonsense = {
        "OTEL_TRACES_EXPORTER": "zipkin",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_TRACES_SAMPLER": "jaeger_remote",
        "OTEL_BSP_MAX_QUEUE_SIZE": "many",
    }
    for environ in ({}, others, nonsense, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}):
        options = read_environment(environ)
        assert options.traces is None and options.metrics is None
    assert not caplog.records


def test_one_endpoint_takes_both_signals() -> None:
    """The common endpoint is for traces and metrics, over gRPC unless said otherwise."""
    options = read_environment(ENDPOINT)
    assert options.traces is options.metrics is Protocol.GRPC
    assert options.traces_to == "http://collector:4317"
    http = read_environment({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    assert http.traces is http.metrics is Protocol.HTTP


def test_signals_apart() -> None:
    """Each signal may have its own endpoint and protocol, or none."""
    options = read_environment(
        {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        }
    )
    assert (options.traces, options.metrics) == (Protocol.HTTP, None)
    off = read_environment({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"})
    assert (off.traces, off.metrics) == (Protocol.GRPC, None)


def test_exporters_may_be_a_list(caplog: pytest.LogCaptureFixture) -> None:
    """As the standard has it; Prometheus reads /metrics whether it is named or not."""
    several = {"OTEL_METRICS_EXPORTER": "otlp, prometheus", "OTEL_TRACES_EXPORTER": "otlp"}
    options = read_environment({**ENDPOINT, **several})
    assert options.traces is options.metrics is Protocol.GRPC
    only = read_environment({**ENDPOINT, "OTEL_METRICS_EXPORTER": "prometheus"})
    assert only.metrics is None
    assert not caplog.records
    both = read_environment({**ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp,console"})
    assert both.traces is Protocol.GRPC
    assert "console" in caplog.text


def test_disabled_is_disabled() -> None:
    """OTEL_SDK_DISABLED goes before everything else."""
    assert read_environment({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}) == OtlpOptions()


@pytest.mark.parametrize(
    ("name", "argument", "wanted"),
    [
        ("", "", Sampling()),
        ("always_on", "", Sampling(ratio=1.0, follows_parent=False)),
        ("always_off", "", Sampling(ratio=0.0, follows_parent=False)),
        ("traceidratio", "0.25", Sampling(ratio=0.25, follows_parent=False)),
        ("parentbased_always_off", "", Sampling(ratio=0.0)),
        ("parentbased_traceidratio", "0.01", Sampling(ratio=0.01)),
        ("parentbased_traceidratio", "", Sampling()),
    ],
)
def test_samplers_of_the_standard(name: str, argument: str, wanted: Sampling) -> None:
    """All six samplers that the standard names are known, with its default."""
    environ = {**ENDPOINT, "OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert read_environment(environ).sampling == wanted


def test_bounds_and_intervals() -> None:
    """Queue, batch and intervals are those of the standard; a batch never exceeds its queue."""
    options = read_environment(
        {
            **ENDPOINT,
            "OTEL_BSP_MAX_QUEUE_SIZE": "100",
            "OTEL_BSP_SCHEDULE_DELAY": "250",
            "OTEL_METRIC_EXPORT_INTERVAL": "1500",
        }
    )
    assert (options.max_pending_spans, options.max_batch_spans) == (100, 100)
    assert (options.schedule_delay_s, options.metrics_interval_s) == (0.25, 1.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ],
)
def test_nonsense_is_said_once_and_passed_over(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the variable; the picker starts all the same."""
    read_environment({**ENDPOINT, name: value})
    assert any(value in entry.getMessage() for entry in caplog.records)


def test_a_ratio_out_of_range_is_one(caplog: pytest.LogCaptureFixture) -> None:
    """A share that cannot be is named, and all is sampled."""
    environ = {**ENDPOINT, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "7"}
    assert read_environment(environ).sampling.ratio == 1.0
    assert "OTEL_TRACES_SAMPLER_ARG" in caplog.text
