"""Where Coxswain listens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import LIST, Bind, HostName


class ListenSettings(Section):
    """Where Coxswain listens. Port 0 takes any free one."""

    grpc: Bind = Field(
        default="127.0.0.1:9002",
        description="The data plane, for Envoy: ext_proc, endpoint discovery and health. "
        "Keep it away from clients: who reaches it steers traffic.",
    )
    admin: Bind = Field(
        default="127.0.0.1:9003",
        description="The admin gRPC services, for operators and agents.",
    )
    http: Bind = Field(
        default="127.0.0.1:9090",
        description="The status pages over HTTP: the dashboard at /, /metrics, /healthz, /readyz, "
        "/status, and /queue/{request-id}.",
    )
    http_hosts: Annotated[tuple[HostName, ...], LIST] = Field(
        default=(),
        description="The host names by which browsers and others may ask for the status pages, "
        "such as the name of a service, besides IP addresses, localhost and listen.http's own. A "
        "page of another site could read them otherwise (DNS rebinding).",
    )
    insecure: bool = Field(
        default=False,
        description="Listen beyond loopback with neither token nor mutual TLS; --insecure.",
    )
