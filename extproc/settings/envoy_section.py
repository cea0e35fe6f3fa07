"""Settings for the Envoy configuration of `coxswain config envoy` and `coxswain up`."""

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.security.path_rule import PathRule, PathRuleError
from extproc.settings.section import Section
from extproc.settings.values import (
    LIST,
    Count,
    EnvoySeconds,
    IpBind,
    Percent,
    SomeSeconds,
    Target,
    Whole,
)

MIB: Final = 1024 * 1024
MAX_RATE_BYTES_PER_S: Final = 10**12
REPORTS_PER_GRACE: Final = 4
"""The number of Envoy's reports on a request's body within `request_body_grace_s`."""
LEAST_INTERVAL_S: Final = 0.001
"""The shortest interval that Envoy accepts."""
MAX_HEAP_BYTES: Final = 10**15
"""A petabyte: more is a number in the wrong unit."""


def _path_rule(rule: str) -> str:
    try:
        return str(PathRule.parse(rule))
    except PathRuleError:
        # Its text shows what was written, which may be a key given for the wrong setting.
        raise PydanticCustomError(
            "path_rule",
            "write a rule as `/path`, `/path*`, `/path/*.js` or `POST /path`, in at most 48 "
            "characters without ?, # or %",
        ) from None


RuleText = Annotated[str, AfterValidator(_path_rule)]


class EnvoySettings(Section):
    """Settings for the Envoy configuration of `coxswain config envoy` and `coxswain up`."""

    discovery: bool = True
    """Whether Envoy gets the endpoints from Coxswain and fails open without it (docs/envoy.md).
    false: each response of the picker names an address (ORIGINAL_DST), and Envoy fails closed. The
    picker and the printed configuration must have the same value."""
    listen: IpBind = "0.0.0.0:10000"
    """Where Envoy serves clients, an IP address and a port."""
    admin: IpBind = "127.0.0.1:9901"
    """Envoy's own admin pages."""
    metrics: IpBind | None = None
    """Where Envoy serves /stats/prometheus, and no other of its admin pages; by default nowhere."""
    stats: Annotated[tuple[Target, ...], LIST] = ()
    """Where Coxswain reads each Envoy's counters, host:port: its envoy.admin or envoy.metrics. They
    show when an Envoy continues without it."""
    picker: Target | None = None
    """Where Envoy reaches Coxswain's data plane, host:port; by default listen.grpc, or loopback if
    that is all interfaces."""
    other_pickers: Annotated[tuple[Target, ...], LIST] = ()
    """The data planes of the other members of a cluster, host:port. For the countdown Envoy also
    uses their status pages, at the port of listen.http, on hosts other than that of
    envoy.picker."""
    picker_ca_file: str | None = Field(default=None, min_length=1)
    """The CA file, PEM, for Coxswain's certificate (grpc_tls.cert_file), where Envoy runs; by
    default the system's."""
    picker_cert_file: str | None = Field(default=None, min_length=1)
    """Envoy's client certificate for Coxswain (grpc_tls.client_ca_file), PEM. Envoy reads it only
    when it starts."""
    picker_key_file: str | None = Field(default=None, min_length=1)
    """Its private key, PEM."""
    picker_server_name: str | None = Field(default=None, min_length=1)
    """The name in Coxswain's certificate; by default the host in envoy.picker."""
    server_ca_files: Annotated[tuple[str, ...], LIST] = ()
    """For `coxswain config envoy --snippet`: the CA files, PEM, of https servers that are added
    later, where Envoy runs, the same as their ca_file, or `system`."""
    inject_keys: bool = False
    """For `coxswain config envoy --snippet`: whether servers with inject_key can be added later if
    none is known."""
    countdown: bool = True
    """Whether clients can read the queue position of their request at GET /queue/{request-id}, for
    which Envoy connects to listen.http."""
    health: bool = False
    """Whether GET /health and /v1/health through Envoy show the slots of the whole fleet
    (docs/metrics.md), without a client's key. false: one of the servers responds."""
    batches: Target | None = None
    """Where Envoy reaches `coxswain batch run`, host:port, for /v1/files and /v1/batches; by
    default these paths are unknown."""
    message_timeout_s: SomeSeconds = 1.0
    """Seconds that Envoy waits for a response of Coxswain, beyond the time in the queue, before it
    continues without it or fails closed (docs/envoy.md)."""
    max_message_timeout_s: SomeSeconds = Field(default=3600.0, le=3600.0)  # Envoy's own bound
    """The longest time in the queue that Envoy allows, at most 3600 s. queue.timeout_s must be 5 s
    shorter."""
    access_log_stream: bool = True
    """Whether Envoy reports responses that were cut off, and the ends of event streams. Without it
    their slots count as busy until a scrape shows them free."""
    connect_timeout_s: SomeSeconds = 1.0
    """Seconds that Envoy waits for a connection to a server."""
    reuse_connections: bool = False
    """Whether requests that are never streamed (embeddings, rerank, token counts) share connections
    to the servers (docs/envoy.md). Requires llama-servers of April 2026 or later."""
    per_try_idle_timeout_s: EnvoySeconds = 300.0
    """Seconds without data from a server after which Envoy ends the attempt; 0 disables the
    limit."""
    retries: Whole = Field(default=3, ge=0, le=10)
    """The number of retries by Envoy, along the fallbacks."""
    body_buffer_bytes: Count = 4 * MIB
    """The body bytes that Envoy buffers while a request is queued or may be retried. A longer body
    is not retried."""
    health_interval_s: SomeSeconds = 2.0
    """Seconds between Envoy's own health checks of each server (/health)."""
    discovery_timeout_s: SomeSeconds = 5.0
    """Seconds after which Envoy accepts requests even without endpoints."""
    host_rewrite: bool = False
    """Whether requests have the endpoint's name as Host. Requires discovery."""
    open_paths: Annotated[tuple[RuleText, ...], LIST] = ()
    """The paths that clients can use besides those of docs/envoy.md: `/path`, `/path*` for all
    below it, `/path/*.js` for files, `POST /path` for one method. The picker and the printed
    configuration must have the same value."""
    blocked_paths: Annotated[tuple[RuleText, ...], LIST] = ()
    """Open paths that are rejected with 403, in the same format: `GET /` blocks the web page."""
    request_headers_timeout_s: SomeSeconds = 10.0
    """Seconds that a client may take to send its headers."""
    request_body_timeout_s: SomeSeconds = 300.0
    """Seconds that a client may take to send its body."""
    request_body_idle_timeout_s: EnvoySeconds = 30.0
    """A request with a slot is rejected if no part of its body arrives for this many seconds,
    within twice this time; 0 disables the limit."""
    request_body_min_rate_bytes_per_s: Whole = Field(default=125_000, ge=0, le=MAX_RATE_BYTES_PER_S)
    """The lowest upload rate of a body in bytes per second (125,000 is 1 Mbit/s) while another
    request waits for its slot. Slower requests are rejected; 0 disables the limit."""
    request_body_grace_s: SomeSeconds = 2.0
    """Seconds that a client may fall behind that rate before its slot goes to another request."""
    connection_idle_timeout_s: SomeSeconds = 300.0
    """Seconds after which a client's connection without a request is closed."""
    max_connections: Whole = Field(default=50_000, ge=1, le=10_000_000)
    """The highest number of client connections."""
    max_heap_bytes: Whole = Field(default=4096 * MIB, ge=0, le=MAX_HEAP_BYTES)
    """Envoy rejects new requests when it uses nearly this much memory; 0 disables the limit."""
    access_log: bool = True
    """Whether Envoy logs each request."""
    trusted_proxies: Whole = Field(default=0, ge=0, le=100)
    """The number of trusted hops in x-forwarded-for."""
    tracing: Target | None = None
    """An OpenTelemetry collector's gRPC port, host:port, for Envoy's own spans."""
    trace_percent: Percent = 100.0
    """The share of requests that are traced, in percent, if the caller does not say."""

    @property
    def opened(self) -> tuple[PathRule, ...]:
        """`open_paths` as rules."""
        return tuple(map(PathRule.parse, self.open_paths))

    @property
    def blocked(self) -> tuple[PathRule, ...]:
        """`blocked_paths` as rules."""
        return tuple(map(PathRule.parse, self.blocked_paths))

    @property
    def upload_report_interval_s(self) -> float | None:
        """How often Envoy reports how much of a body has arrived; None if no limit needs it."""
        times_s = [self.request_body_idle_timeout_s / 2]
        if self.request_body_min_rate_bytes_per_s:
            times_s.append(self.request_body_grace_s / REPORTS_PER_GRACE)
        wanted_s = [each for each in times_s if each]
        return max(LEAST_INTERVAL_S, min(wanted_s)) if wanted_s else None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.picker_cert_file is None) != (self.picker_key_file is None):
            raise PydanticCustomError(
                "together", "give picker_cert_file and picker_key_file together"
            )
        problem: Any = None
        if self.message_timeout_s > self.max_message_timeout_s:
            problem = "message_timeout_s must not exceed max_message_timeout_s"
        elif self.host_rewrite and not self.discovery:
            problem = "host_rewrite needs discovery: without it, endpoints have no names"
        if problem is not None:
            raise PydanticCustomError("order", problem)
        return self
