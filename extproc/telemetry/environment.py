"""What the standard `OTEL_*` variables ask of us; the exporters read their own ones themselves.

Nothing is exported, and nothing is said about it, while no endpoint is set.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from extproc.telemetry.trace_context import Sampling

log = logging.getLogger("coxswain.telemetry")


class Protocol(Enum):
    GRPC = "grpc"
    HTTP = "http/protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions:
    """How to export. A protocol of None leaves that signal alone. Times are seconds."""

    traces: Protocol | None = None
    metrics: Protocol | None = None
    traces_to: str = ""
    metrics_to: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    max_pending_spans: int = 2048
    max_batch_spans: int = 512
    schedule_delay_s: float = 5.0
    metrics_interval_s: float = 60.0


def read_environment(environ: Mapping[str, str]) -> OtlpOptions:
    """The options from `environ`. Invalid values are logged and ignored."""
    read = _Reader(environ)
    if read.text("OTEL_SDK_DISABLED").lower() == "true":
        return OtlpOptions()
    traces, metrics = read.protocol("TRACES"), read.protocol("METRICS")
    if traces is None and metrics is None:
        return OtlpOptions()
    max_pending = read.count("OTEL_BSP_MAX_QUEUE_SIZE", 2048)
    return OtlpOptions(
        traces=traces,
        metrics=metrics,
        traces_to=read.endpoint("TRACES"),
        metrics_to=read.endpoint("METRICS"),
        sampling=read.sampling(),
        max_pending_spans=max_pending,
        max_batch_spans=min(max_pending, read.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)),
        schedule_delay_s=read.count("OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
        metrics_interval_s=read.count("OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
    )


_SAMPLERS: Final = {
    # name: (follows the parent, share; None asks for OTEL_TRACES_SAMPLER_ARG)
    "always_on": (False, 1.0),
    "always_off": (False, 0.0),
    "traceidratio": (False, None),
    "parentbased_always_on": (True, 1.0),
    "parentbased_always_off": (True, 0.0),
    "parentbased_traceidratio": (True, None),
}


_EXPORTERS: Final = {
    "TRACES": {"otlp", "none"},
    "METRICS": {"otlp", "none", "prometheus"},  # which is on /metrics always
}


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def endpoint(self, signal: str) -> str:
        return self.text(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or self.text(
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        )

    def protocol(self, signal: str) -> Protocol | None:
        name = f"OTEL_{signal}_EXPORTER"
        exporters = {one.strip() for one in (self.text(name).lower() or "otlp").split(",")}
        if exporters == {"none"} or not self.endpoint(signal):
            return None
        if strange := exporters - _EXPORTERS[signal]:
            unknown, known = (", ".join(sorted(one)) for one in (strange, _EXPORTERS[signal]))
            log.warning("%s: %s is not supported, only %s", name, unknown, known)
        if "otlp" not in exporters:
            return None
        name = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        asked = self.text(name) or self.text("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
        try:
            return Protocol(asked.lower())
        except ValueError:
            log.warning(
                "%s: %r is not a supported protocol; use grpc or http/protobuf", name, asked
            )
            return None

    def count(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
        log.warning("%s: %r is not a whole number greater than 0; using %d", name, text, default)
        return default

    def sampling(self) -> Sampling:
        name = self.text("OTEL_TRACES_SAMPLER").lower() or "parentbased_always_on"
        if name not in _SAMPLERS:
            log.warning("OTEL_TRACES_SAMPLER: %r is not supported; sampling everything", name)
            return Sampling()
        follows_parent, ratio = _SAMPLERS[name]
        if ratio is None:
            ratio = self._ratio()
        return Sampling(ratio=ratio, follows_parent=follows_parent)

    def _ratio(self) -> float:
        text = self.text("OTEL_TRACES_SAMPLER_ARG")
        try:
            ratio = float(text or 1.0)
        except ValueError:
            ratio = -1.0
        if 0.0 <= ratio <= 1.0:
            return ratio
        log.warning("OTEL_TRACES_SAMPLER_ARG: %r is not between 0 and 1; using 1", text)
        return 1.0
