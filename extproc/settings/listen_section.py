"""Where Coxswain listens, and what its dashboard links to."""

from typing import Annotated

from extproc.settings.section import Section
from extproc.settings.values import LIST, Bind, ServerName, WebUrl


class ListenSettings(Section):
    """The addresses on which Coxswain listens. Port 0 selects any free port."""

    grpc: Bind = "127.0.0.1:9002"
    """The data plane, for Envoy: ext_proc, endpoint discovery and health. Who can reach it can
    control the traffic."""
    admin: Bind = "127.0.0.1:9003"
    """The admin gRPC services, for operators and agents."""
    http: Bind = "127.0.0.1:9090"
    """The status pages: the dashboard at /, /playground, /status, /activity, /metrics, /health,
    /healthz, /readyz, /queue/{request-id}, and for operators /actions/ and /keys."""
    http_hosts: Annotated[tuple[ServerName, ...], LIST] = ()
    """The host names that the status pages accept, besides IP addresses, localhost and the host in
    listen.http (docs/security.md)."""
    insecure: bool = False
    """Allow listening beyond loopback without a token and without mutual TLS; the same as
    --insecure."""


class DashboardSettings(Section):
    """Where the dashboard leads to. Viewers' browsers open these addresses."""

    grafana_url: WebUrl | None = None
    """The address of Grafana, http:// or https://, for a link."""
    jaeger_url: WebUrl | None = None
    """The address of Jaeger, http:// or https://, for a link."""

    gateway_url: WebUrl | None = None
    """The address of Envoy for the playground, http:// or https://; by default the host of the
    dashboard at the port of envoy.listen."""

    @property
    def links(self) -> dict[str, str]:
        """The links by name."""
        links = {"Grafana": self.grafana_url, "Jaeger": self.jaeger_url}
        return {name: url for name, url in links.items() if url is not None}
