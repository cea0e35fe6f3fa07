"""Where Coxswain listens, and what its dashboard links to."""

from typing import Annotated

from extproc.settings.section import Section
from extproc.settings.values import LIST, Bind, ServerName, WebUrl


class ListenSettings(Section):
    """The addresses on which Coxswain listens. Port 0 selects any free port."""

    grpc: Bind = "127.0.0.1:9002"
    """The data plane, for Envoy: ext_proc, endpoint discovery and health. Keep clients away from
    it: anyone who can reach it can control the traffic."""
    admin: Bind = "127.0.0.1:9003"
    """The admin gRPC services, for operators and agents."""
    http: Bind = "127.0.0.1:9090"
    """The status pages over HTTP: the dashboard at /, /status, /activity, /metrics, /health,
    /healthz, /readyz, /queue/{request-id}, and /actions/ for operators with the admin token."""
    http_hosts: Annotated[tuple[ServerName, ...], LIST] = ()
    """The host names that the status pages accept, such as the name of a service, besides IP
    addresses, localhost and the host in listen.http. This protects the pages from other web sites
    (DNS rebinding)."""
    insecure: bool = False
    """Allow listening beyond loopback without a token and without mutual TLS; the same as
    --insecure."""


class DashboardSettings(Section):
    """Links of the dashboard to other tools. Viewers' browsers open them, the picker does not."""

    grafana_url: WebUrl | None = None
    """The address of Grafana, http:// or https://. Without it, the dashboard has no such link."""
    jaeger_url: WebUrl | None = None
    """The address of Jaeger, http:// or https://. Without it, the dashboard has no such link."""
