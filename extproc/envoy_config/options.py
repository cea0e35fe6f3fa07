"""The options of the Envoy configuration, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from extproc.core.address import MAX_PORT
from extproc.security.path_rule import PathRule

MIB = 1024 * 1024
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"


class OptionsError(ValueError):
    """Invalid options; `str(error)` says which and why."""


class Mode(Enum):
    """How Envoy learns the addresses of the llama-servers."""

    DISCOVERY = "discovery"  # the picker serves them; fails open to Envoy's least_request
    GATEWAY = "gateway"  # the same, and asks as gateways do: bodies flow through the picker
    ORIGINAL_DST = "original-dst"  # each answer of the picker names one; fails closed


@dataclass(frozen=True, slots=True)
class HostPort:
    """A place to listen on or to connect to. `host` is an IP address or a name."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host:
            raise OptionsError("the host is missing; write host:port, e.g. 127.0.0.1:9002")
        if not 0 <= self.port <= MAX_PORT:
            raise OptionsError(f"{self.port} is not a port; ports go up to {MAX_PORT}")

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Read `host:port` or `[::1]:port`; raises `OptionsError`."""
        host, colon, port = text.rpartition(":")
        if not (colon and port.isascii() and port.isdigit()):
            raise OptionsError(f"{text!r} has no port; write host:port, e.g. 127.0.0.1:9002")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProfile:
    """How to speak TLS to the servers that discovery gives this profile's `name`.

    `server_name` must be in their certificate; without one it is the host name that discovery
    provides, so that one profile serves all that share their CAs. `ca_file` lies
    where Envoy runs; `ca_pem` is used instead of it if given.
    """

    name: str
    server_name: str | None = None
    ca_file: str = SYSTEM_CA
    ca_pem: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerTls:
    """How to speak TLS to the picker; with `cert_file` and `key_file`, showing a certificate."""

    server_name: str
    ca_file: str = SYSTEM_CA
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyOptions:
    """All choices; the defaults are the files in `envoy/`. Times are seconds.

    `body_buffer_bytes` is how much of a request's body Envoy keeps: so much a request in the
    line may cost, so much a picker that reads bodies gets as the first part, and only a
    request whose whole body fits in can be tried again on the next endpoint.

    Raises `OptionsError` when two of them contradict each other.
    """

    mode: Mode = Mode.DISCOVERY
    serves_cluster: bool = True  # the picker also serves the TLS settings of the servers (CDS)

    # Where things listen.
    listener: HostPort = HostPort("0.0.0.0", 10000)  # the clients' door
    admin: HostPort = HostPort("127.0.0.1", 9901)
    metrics: HostPort | None = None  # for Prometheus: none of the other admin pages
    picker: HostPort = HostPort("127.0.0.1", 9002)
    other_pickers: tuple[HostPort, ...] = ()  # the other members of a cluster
    status: HostPort | None = HostPort("127.0.0.1", 9090)  # for /queue/{id}; None closes it
    other_status: tuple[HostPort, ...] = ()  # the same pages at the other members

    # The conversation with the picker.
    message_timeout_s: float = 1.0  # a picker silent for this long is passed over
    max_message_timeout_s: float = 3600.0  # the longest time in the queue
    has_fronts: bool = False  # several fronts behind the picker's port: streams are opened again
    sends_bodies: bool = False  # with fronts: each body is sent with its headers
    access_log_stream: bool = (
        True  # report broken responses to the picker, and which side ended them
    )

    reads_usage: bool = False  # send the picker the responses, for their token counts

    # The way to a server.
    connect_timeout_s: float = 1.0
    per_try_idle_timeout_s: float = 300.0  # a server's longest silence; 0 waits for ever
    retries: int = 3
    body_buffer_bytes: int = 4 * MIB  # see below
    health_interval_s: float = 2.0
    discovery_timeout_s: float = 5.0  # Envoy opens its door after this, fleet or no fleet
    server_prefix: str = ""  # the servers' --api-prefix, below which they serve /health
    host_rewrite: bool = False  # send the endpoint's own name as Host
    path_prefix: str = ""  # what is open is open below it, too
    open_paths: tuple[PathRule, ...] = ()  # besides those of security/api_paths.py
    blocked_paths: tuple[PathRule, ...] = ()  # in spite of either

    # Keys and certificates.
    picker_tls: PickerTls | None = None  # None speaks to the picker in the clear
    tls_profiles: tuple[TlsProfile, ...] = ()  # for the servers behind TLS
    injects_keys: bool = False  # send a server the key that discovery provides with its address
    checks_clients: bool = False  # the picker checks their keys, so nobody passes without it

    # Bounds against slow and greedy clients.
    request_headers_timeout_s: float = 10.0
    request_body_timeout_s: float = 300.0  # in addition to the time in the queue
    request_body_idle_timeout_s: float = 30.0  # with a slot held for it; 0 waits for ever
    request_body_min_rate_bytes_per_s: int = 125_000  # while others wait; 0 is no bound
    request_body_grace_s: float = 2.0  # how far behind that rate a client may be
    connection_idle_timeout_s: float = 300.0
    max_connections: int = 50_000
    max_heap_bytes: int = 4096 * MIB  # near it new requests are rejected; 0 is unbounded

    # Logs and traces.
    access_log: bool = True
    trusted_proxies: int = 0  # how many hops of x-forwarded-for to believe
    tracing: HostPort | None = None  # an OpenTelemetry collector's gRPC port
    trace_percent: float = 100.0  # of the requests whose caller did not decide it

    @property
    def has_discovery(self) -> bool:
        """Whether the picker serves the addresses, so that an answer may name several."""
        return self.mode is not Mode.ORIGINAL_DST

    @property
    def has_usage_filter(self) -> bool:
        """Whether responses are sent to the picker beside ext_proc: a gateway's pass it anyway."""
        return self.reads_usage and self.mode is not Mode.GATEWAY

    @property
    def has_served_cluster(self) -> bool:
        """Whether the picker serves the llama-servers' whole cluster."""
        return self.has_discovery and self.serves_cluster

    @property
    def keeps_authorization(self) -> bool:
        """Whether the listener remembers what clients sent as `authorization`, for servers that
        get no key of ours. A served cluster may come to need it at any time."""
        return self.injects_keys or self.has_served_cluster

    def __post_init__(self) -> None:
        if (self.tls_profiles or self.injects_keys) and self.mode is Mode.ORIGINAL_DST:
            raise OptionsError("servers with TLS and injected keys need discovery")
