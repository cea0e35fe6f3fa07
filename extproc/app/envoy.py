"""From the settings to the options of Envoy's configuration."""

import ipaddress
from collections.abc import Iterable
from pathlib import Path

from extproc.core.request import HOLD_MARGIN_S
from extproc.envoy_config.clusters import llama
from extproc.envoy_config.options import (
    SYSTEM_CA,
    EnvoyOptions,
    HostPort,
    Mode,
    OptionsError,
    PickerTls,
    TlsProfile,
)
from extproc.security.path_rule import PathRule
from extproc.security.trust import Trust
from extproc.settings import (
    Access,
    EndpointSettings,
    Settings,
    certified_ip,
    parse_endpoints,
    profile_of,
    tls_profile,
)

SYSTEM = "system"
"""The word in `envoy.server_ca_files` for the system CAs where Envoy runs."""


def envoy_options(settings: Settings) -> EnvoyOptions:
    """The configuration of the Envoy that stands before a picker with these settings.

    Raises `OptionsError` or `PathRuleError` for what the settings themselves let pass, since a
    picker alone can run with it.
    """
    envoy = settings.envoy
    picker = _picker_address(settings)
    servers: tuple[Access, ...] = (
        *settings.endpoints,
        *settings.discovery.dns,
        *_followed(settings),
    )
    return EnvoyOptions(
        mode=Mode.DISCOVERY if envoy.discovery else Mode.ORIGINAL_DST,
        listener=HostPort.parse(envoy.listen),
        admin=HostPort.parse(envoy.admin),
        metrics=HostPort.parse(envoy.metrics) if envoy.metrics else None,
        picker=picker,
        other_pickers=tuple(map(HostPort.parse, envoy.other_pickers)),
        picker_tls=_picker_tls(settings, picker.host),
        tls_profiles=_tls_profiles(servers, envoy.server_ca_files),
        injects_keys=envoy.inject_keys or any(each.inject_key for each in servers),
        checks_clients=settings.clients.keys_file is not None,
        status=_status_address(settings) if envoy.countdown else None,
        other_status=_other_pages(settings) if envoy.countdown else (),
        message_timeout_s=_message_timeout_s(settings),
        has_fronts=bool(settings.fronts),
        sends_bodies=bool(settings.fronts) and settings.routing.read_body != "never",
        max_message_timeout_s=envoy.max_message_timeout_s,
        access_log_stream=envoy.access_log_stream,
        reads_usage=settings.usage.path is not None,
        connect_timeout_s=envoy.connect_timeout_s,
        per_try_idle_timeout_s=envoy.per_try_idle_timeout_s,
        retries=envoy.retries,
        body_buffer_bytes=envoy.body_buffer_bytes,
        health_interval_s=envoy.health_interval_s,
        discovery_timeout_s=envoy.discovery_timeout_s,
        server_prefix=settings.scraper.path_prefix,
        host_rewrite=envoy.host_rewrite,
        path_prefix=settings.routing.path_prefix,
        open_paths=tuple(map(PathRule.parse, envoy.open_paths)),
        blocked_paths=tuple(map(PathRule.parse, envoy.blocked_paths)),
        request_headers_timeout_s=envoy.request_headers_timeout_s,
        request_body_timeout_s=envoy.request_body_timeout_s,
        request_body_idle_timeout_s=envoy.request_body_idle_timeout_s,
        request_body_min_rate_bytes_per_s=envoy.request_body_min_rate_bytes_per_s,
        request_body_grace_s=envoy.request_body_grace_s,
        connection_idle_timeout_s=envoy.connection_idle_timeout_s,
        max_connections=envoy.max_connections,
        max_heap_bytes=envoy.max_heap_bytes,
        access_log=envoy.access_log,
        trusted_proxies=envoy.trusted_proxies,
        tracing=HostPort.parse(envoy.tracing) if envoy.tracing else None,
        trace_percent=envoy.trace_percent,
    )


def served_cluster(settings: Settings, trusts: Iterable[Trust], injects_keys: bool) -> bytes:
    """The llama-servers' cluster as the picker serves it to an Envoy, in wire format.

    `injects_keys` says whether Envoy's listener keeps the clients' own keys apart.
    """
    envoy = settings.envoy
    options = EnvoyOptions(
        connect_timeout_s=envoy.connect_timeout_s,
        health_interval_s=envoy.health_interval_s,
        discovery_timeout_s=envoy.discovery_timeout_s,
        server_prefix=settings.scraper.path_prefix,
        injects_keys=injects_keys,
        tls_profiles=tuple(
            TlsProfile(name=trust.profile, server_name=trust.ip, ca_pem=trust.ca_pem)
            for trust in trusts
        ),
    )
    return bytes(llama(options))


def _message_timeout_s(settings: Settings) -> float:
    """How long Envoy waits for a reply. With fronts the time in the queue is included: a front that
    asked Envoy for it would have answered, and its streams could not move to another front."""
    if not settings.fronts:
        return settings.envoy.message_timeout_s
    longest_s = settings.queue.timeout_s + HOLD_MARGIN_S
    return max(settings.envoy.message_timeout_s, longest_s)


def _picker_address(settings: Settings) -> HostPort:
    if settings.envoy.picker is not None:
        return HostPort.parse(settings.envoy.picker)
    return _fixed("listen.grpc", settings.listen.grpc, "envoy.picker")


def _fixed(key: str, listens_at: str, remedy: str) -> HostPort:
    """The address at which Envoy reaches it; raises `OptionsError` for port 0."""
    address = _reached_at(HostPort.parse(listens_at))
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


def _reached_at(address: HostPort) -> HostPort:
    """A picker that listens on all interfaces is reached over loopback."""
    try:
        listens_at = ipaddress.ip_address(address.host)
    except ValueError:
        return address
    if not listens_at.is_unspecified:
        return address
    return HostPort("127.0.0.1" if listens_at.version == 4 else "::1", address.port)
