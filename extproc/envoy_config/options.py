"""What Envoy's configuration is built from: its section of the settings, and what follows from the
other sections."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from extproc.core.request import HOLD_MARGIN_S
from extproc.settings import (
    Access,
    EndpointSettings,
    Settings,
    certified_ip,
    parse_endpoints,
    profile_of,
    tls_profile,
)
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.pool_section import PoolSettings
from extproc.settings.values import split_host_port

MIB = 1024 * 1024
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
SYSTEM = "system"
"""The word in `envoy.server_ca_files` for the system CAs where Envoy runs."""


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

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Read `host:port` or `[::1]:port` as the settings have it."""
        return cls(*split_host_port(text))

    @property
    def reached(self) -> HostPort:
        """The same, but over loopback for what listens on all interfaces."""
        try:
            listens_at = ipaddress.ip_address(self.host)
        except ValueError:
            return self
        if not listens_at.is_unspecified:
            return self
        return HostPort("127.0.0.1" if listens_at.version == 4 else "::1", self.port)


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
    """All choices; the defaults are the files in `envoy/`.

    Raises `OptionsError` when two of them contradict each other.
    """

    envoy: EnvoySettings = field(default_factory=EnvoySettings)
    mode: Mode = Mode.DISCOVERY
    serves_cluster: bool = True  # the picker also serves the TLS settings of the servers (CDS)

    # The conversation with the picker.
    picker: HostPort = HostPort("127.0.0.1", 9002)
    picker_tls: PickerTls | None = None  # None speaks to the picker in the clear
    status: HostPort | None = HostPort("127.0.0.1", 9090)  # for /queue/{id}; None closes it
    other_status: tuple[HostPort, ...] = ()  # the same pages at the other members
    has_fronts: bool = False  # several fronts behind the picker's port: streams are opened again
    longest_queue_s: float = 0.0  # with fronts: the time in the queue, when nothing is answered
    sends_bodies: bool = False  # with fronts: each body is sent with its headers
    reads_usage: bool = False  # send the picker the responses, for their token counts
    checks_clients: bool = False  # the picker checks their keys, so nobody passes without it
    pool_headers: tuple[str, ...] = ()  # by which the picker chooses a pool
    pool_attributes: tuple[str, ...] = ()  # the same, of the route's metadata
    pool_namespaces: tuple[str, ...] = ()  # the same, of metadata that earlier filters write

    # The way to a server.
    server_prefix: str = ""  # the servers' --api-prefix, below which they serve /health
    path_prefix: str = ""  # what is open is open below it, too
    tls_profiles: tuple[TlsProfile, ...] = ()  # for the servers behind TLS
    injects_keys: bool = False  # send a server the key that discovery provides with its address

    @property
    def message_timeout_s(self) -> float:
        """How long Envoy waits for a reply. With fronts the time in the queue is included: a front
        that asked Envoy for it would have answered, and its streams could not move to another."""
        return max(self.envoy.message_timeout_s, self.longest_queue_s)

    @property
    def has_discovery(self) -> bool:
        """Whether the picker serves the addresses, so that an answer may name several."""
        return self.mode is not Mode.ORIGINAL_DST

    @property
    def fails_open(self) -> bool:
        """Whether Envoy goes on without the picker: it knows the servers, and nobody's key had to
        be checked."""
        return self.has_discovery and not self.checks_clients

    @property
    def sends_early(self) -> bool:
        """Whether bodies are sent without being asked for. The request for a body is an answer,
        after which a stream cannot be opened again at another front. Envoy keeps each part until
        the picker has answered it, so it can still go on without the picker."""
        return self.sends_bodies and self.mode is not Mode.GATEWAY

    @property
    def asks_again(self) -> bool:
        """Whether a long body whose front was lost goes to another one before Envoy goes on without
        the picker: its stream itself cannot be opened again."""
        return self.sends_early and self.fails_open

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


def envoy_options(settings: Settings) -> EnvoyOptions:
    """Those of the Envoy that stands before a picker with these settings.

    Raises `OptionsError` for what the settings themselves let pass, since a picker alone can run
    with it.
    """
    envoy = settings.envoy
    picker = _picker_address(settings)
    servers: tuple[Access, ...] = (
        *settings.endpoints,
        *settings.discovery.dns,
        *settings.discovery.kubernetes,
        *_followed(settings),
    )
    pool_metadata = [one.metadata for one in settings.pools.values() if one.metadata is not None]
    return EnvoyOptions(
        envoy=envoy,
        mode=Mode.DISCOVERY if envoy.discovery else Mode.ORIGINAL_DST,
        picker=picker,
        picker_tls=_picker_tls(settings, picker.host),
        status=_status_address(settings) if envoy.countdown else None,
        other_status=_other_pages(settings) if envoy.countdown else (),
        has_fronts=bool(settings.fronts),
        longest_queue_s=settings.queue.timeout_s + HOLD_MARGIN_S if settings.fronts else 0.0,
        sends_bodies=bool(settings.fronts) and settings.routing.read_body != "never",
        reads_usage=settings.usage.path is not None,
        checks_clients=settings.clients.keys_file is not None,
        pool_headers=_pool_headers(settings.pools),
        pool_attributes=tuple(dict.fromkeys(one.attribute for one in pool_metadata)),
        pool_namespaces=tuple(dict.fromkeys(one.namespace for one in pool_metadata)),
        server_prefix=settings.scraper.path_prefix,
        path_prefix=settings.routing.path_prefix,
        tls_profiles=_tls_profiles(servers, envoy.server_ca_files),
        injects_keys=envoy.inject_keys or any(each.inject_key for each in servers),
    )


def _pool_headers(pools: Mapping[str, PoolSettings]) -> tuple[str, ...]:
    found = {one.header.name: None for one in pools.values() if one.header is not None}
    if any(one.hosts for one in pools.values()):
        found[":authority"] = None
    return tuple(found)


def _picker_address(settings: Settings) -> HostPort:
    if settings.envoy.picker is not None:
        return HostPort.parse(settings.envoy.picker)
    return _fixed("listen.grpc", settings.listen.grpc, "envoy.picker")


def _fixed(key: str, listens_at: str, remedy: str) -> HostPort:
    """The address at which Envoy reaches it; raises `OptionsError` for port 0."""
    address = HostPort.parse(listens_at).reached
    if address.port == 0:
        raise OptionsError(f"{key} uses any free port, which Envoy cannot know; set {remedy}")
    return address


def _status_address(settings: Settings) -> HostPort:
    """The pages are where the picker is: on its host, when Envoy reaches that by another name."""
    pages = _fixed("listen.http", settings.listen.http, "a port, or envoy.countdown: false")
    if settings.envoy.picker is None:
        return pages
    return HostPort(HostPort.parse(settings.envoy.picker).host, pages.port)


def _other_pages(settings: Settings) -> tuple[HostPort, ...]:
    """The pages of the other members, on the same port: each passes them on to the leader. Members
    on one host have other ports, which nobody knows here; then the first one's are asked alone."""
    first = _status_address(settings)
    hosts = dict.fromkeys(HostPort.parse(place).host for place in settings.envoy.other_pickers)
    return tuple(HostPort(host, first.port) for host in hosts if host != first.host)


def _followed(settings: Settings) -> tuple[EndpointSettings, ...]:
    """What the endpoints file names by now: Envoy must know its servers' certificates too."""
    if settings.discovery.file is None:
        return ()
    file = Path(settings.discovery.file).expanduser()
    return parse_endpoints(file.read_bytes(), str(file)) if file.is_file() else ()


def _picker_tls(settings: Settings, host: str) -> PickerTls | None:
    """How Envoy speaks TLS to the picker at `host`, None where the picker speaks none."""
    envoy = settings.envoy
    if settings.grpc_tls.cert_file is None:
        for key in ("picker_ca_file", "picker_cert_file", "picker_server_name"):
            if getattr(envoy, key) is not None:
                raise OptionsError(f"envoy.{key} requires grpc_tls")
        return None
    if settings.grpc_tls.client_ca_file is not None and envoy.picker_cert_file is None:
        raise OptionsError(
            "grpc_tls.client_ca_file requires a certificate of Envoy: set "
            "envoy.picker_cert_file and envoy.picker_key_file"
        )
    return PickerTls(
        server_name=envoy.picker_server_name or host,
        ca_file=envoy.picker_ca_file or SYSTEM_CA,
        cert_file=envoy.picker_cert_file,
        key_file=envoy.picker_key_file,
    )


def _tls_profiles(servers: tuple[Access, ...], ca_files: tuple[str, ...]) -> tuple[TlsProfile, ...]:
    """One for all servers that share a CA, and one for each that is verified by its IP address.

    In the order of their mention: first those of known servers, then those that may come.
    """
    found = {}
    for server in servers:
        if server.is_tls:
            name = profile_of(server)
            found[name] = TlsProfile(
                name=name, server_name=certified_ip(server), ca_file=server.ca_file or SYSTEM_CA
            )
    for file in ca_files:
        ca_file = None if file == SYSTEM else file
        name = tls_profile(ca_file)
        found.setdefault(name, TlsProfile(name=name, ca_file=ca_file or SYSTEM_CA))
    return tuple(found.values())
