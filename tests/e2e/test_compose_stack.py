"""The compose stack's processes with the compose stack's settings, on loopback.

Only names of other containers and ports are replaced; the servers are simulated ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extproc.demo.port import LOOPBACK
from tests.deploy.stack_files import DEPLOY, compose, yaml_of
from tests.e2e.stack import Stack
from tests.fakes.otlp_receiver import OtlpReceiver, otlp_receiver, text_attributes

pytestmark = pytest.mark.e2e

COLLECTOR = "otel-collector:4317"
REPLACED = {"endpoints", "discovery", "listen"}
"""What names containers or ports of the stack; the test's own stand in their place."""


def settings(receiver: OtlpReceiver) -> dict[str, Any]:
    """deploy/coxswain.yaml for this machine."""
    tree: dict[str, Any] = yaml_of(DEPLOY / "coxswain.yaml")
    envoy = tree.pop("envoy")
    assert envoy.pop("picker") == "coxswain:9002"
    assert envoy["tracing"] == COLLECTOR
    envoy["tracing"] = f"{LOOPBACK}:{receiver.grpc_port}"
    return {"envoy": envoy, **{key: value for key, value in tree.items() if key not in REPLACED}}


def environment(receiver: OtlpReceiver) -> dict[str, str]:
    """What the coxswain container gets, for this machine and less patient."""
    values: dict[str, str] = compose()["services"]["coxswain"]["environment"]
    assert COLLECTOR in values["OTEL_EXPORTER_OTLP_ENDPOINT"]
    return {
        **{
            name: value.replace(COLLECTOR, f"{LOOPBACK}:{receiver.grpc_port}")
            for name, value in values.items()
        },
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }


async def test_traces_and_metrics_reach_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request through the stack shows up as one trace of both services, and as numbers."""
    async with otlp_receiver() as receiver:
        for name, value in environment(receiver).items():
            monkeypatch.setenv(name, value)
        async with Stack.running(
            tmp_path, slots=(2, 2), settings=settings(receiver), kind="simulator"
        ) as stack:
            answer = await stack.ask()
            assert answer.status_code == 200

            def traces_of_both() -> set[bytes]:
                ours, envoys = (receiver.spans(service) for service in ("coxswain", "envoy"))
                return {span.trace_id for span in ours} & {span.trace_id for span in envoys}

            await receiver.until(lambda: bool(traces_of_both()))

            def served() -> float:
                metric = receiver.latest_metrics().get("coxswain_requests_total")
                points = metric.sum.data_points if metric is not None else ()
                return sum(
                    point.as_int
                    for point in points
                    if text_attributes(point)["outcome"] == "served"
                )

            await receiver.until(lambda: served() >= 1)

            def idle() -> dict[str, float]:
                return {
                    text_attributes(point)["endpoint"]: point.as_double
                    for point in receiver.latest_metrics()["coxswain_slots"].gauge.data_points
                    if text_attributes(point)["state"] == "idle"
                }

            # A scrape may have seen the slot still taken for a moment after the answer.
            await receiver.until(lambda: idle() == {one.address: 2.0 for one in stack.servers})
            health = await stack.client.get(f"http://{LOOPBACK}:{stack.http_port}/healthz")
            assert health.status_code == 200, "the container's health check"
            text = (await stack.client.get(f"http://{LOOPBACK}:{stack.http_port}/metrics")).text
            assert "coxswain_requests_total" in text, "what Prometheus scrapes"
