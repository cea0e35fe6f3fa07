"""gRPC's health service under the names that Envoy, Kubernetes and llm-d use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2 as pb

from extproc.transport.call import Call, ServiceTable
from extproc.transport.status import INVALID_ARGUMENT, NOT_FOUND, OK

SERVICE: Final = "grpc.health.v1.Health"
LIVENESS: Final = "liveness"
READINESS: Final = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor")

_SERVING: Final = pb.HealthCheckResponse.SERVING
_NOT_SERVING: Final = pb.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = pb.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """One state for every port: alive as long as it answers, ready while it takes requests."""

    def __init__(self) -> None:
        self._is_ready = False
        self._watches: set[Callable[[], None]] = set()

    def add_to(self, table: ServiceTable) -> None:
        """Serve the health service."""
        table[f"/{SERVICE}/Check"] = lambda call: _Check(self, call)
        table[f"/{SERVICE}/Watch"] = lambda call: _Watch(self, call)

    @property
    def watches(self) -> int:
        """How many watch it."""
        return len(self._watches)

    def set_ready(self, is_ready: bool) -> None:
        """Report the readiness to watchers; the picker is alive in any case."""
        self._is_ready = is_ready
        for report in list(self._watches):
            report()

    def status_of(self, service: str) -> Any:
        """The status of a service, None for one of another name."""
        if service == LIVENESS:
            return _SERVING
        if service not in READINESS:
            return None
        return _SERVING if self._is_ready else _NOT_SERVING

    def begin_watch(self, report: Callable[[], None]) -> None:
        """Call `report` after each change."""
        self._watches.add(report)

    def end_watch(self, report: Callable[[], None]) -> None:
        """No more; without effect if it never was."""
        self._watches.discard(report)


class _Check:
    """A call with one answer."""

    def __init__(self, health: Health, call: Call) -> None:
        self._health = health
        self._call = call

    def receive(self, message: bytes) -> None:
        service = _service_in(message, self._call)
        if service is None:
            return
        status = self._health.status_of(service)
        if status is None:
            self._call.finish(NOT_FOUND, "there is no service of that name")
            return
        self._call.send(pb.HealthCheckResponse(status=status).SerializeToString())
        self._call.finish(OK)

    def half_closed(self) -> None:
        self._call.finish(INVALID_ARGUMENT, "a request is missing")

    def gone(self) -> None:
        """Nothing is kept for it."""


class _Watch:
    """A call that receives each change. It ends with its client."""

    def __init__(self, health: Health, call: Call) -> None:
        self._health = health
        self._call = call
        self._service: str | None = None
        self._reported: Any = None

    def receive(self, message: bytes) -> None:
        if self._service is None:
            self._service = _service_in(message, self._call)
            if self._service is not None:
                self._health.begin_watch(self.report)
                self.report()

    def report(self) -> None:
        status = self._health.status_of(self._service or "")
        status = _UNKNOWN if status is None else status
        if status != self._reported:
            self._reported = status
            self._call.send(pb.HealthCheckResponse(status=status).SerializeToString())

    def half_closed(self) -> None:
        """Its client only listens from now on."""

    def gone(self) -> None:
        self._health.end_watch(self.report)


def _service_in(message: bytes, call: Call) -> str | None:
    """The service that is asked for; None where the call is ended for its message."""
    try:
        return pb.HealthCheckRequest.FromString(message).service
    except DecodeError:
        call.finish(INVALID_ARGUMENT, "not a valid HealthCheckRequest")
        return None
