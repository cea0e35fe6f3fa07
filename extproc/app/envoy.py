"""From the settings to the options of Envoy's configuration."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from extproc.envoy_config.blocked_path import BlockedPath
from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode

if TYPE_CHECKING:
    from extproc.settings import Settings


def envoy_options(settings: Settings) -> EnvoyOptions:
    """The configuration of the Envoy that stands before a picker with these settings.

    Raises `OptionsError` or `BlockedPathError` for what the settings themselves let pass.
    """
    envoy = settings.envoy
    return EnvoyOptions(
        mode=Mode.DISCOVERY if envoy.discovery else Mode.ORIGINAL_DST,
        listener=HostPort.parse(envoy.listen),
        admin=HostPort.parse(envoy.admin),
        picker=_reached_at(HostPort.parse(envoy.picker or settings.listen.grpc)),
        status=_status_place(settings) if envoy.countdown else None,
        message_timeout_s=envoy.message_timeout_s,
        max_message_timeout_s=envoy.max_message_timeout_s,
        end_reports=envoy.end_reports,
        connect_timeout_s=envoy.connect_timeout_s,
        per_try_idle_timeout_s=envoy.per_try_idle_timeout_s,
        retries=envoy.retries,
        body_buffer_bytes=envoy.body_buffer_bytes,
        health_interval_s=envoy.health_interval_s,
        discovery_timeout_s=envoy.discovery_timeout_s,
        host_rewrite=envoy.host_rewrite,
        blocked_paths=tuple(BlockedPath.parse(rule) for rule in envoy.blocked_paths),
        request_headers_timeout_s=envoy.request_headers_timeout_s,
        request_body_timeout_s=envoy.request_body_timeout_s,
        connection_idle_timeout_s=envoy.connection_idle_timeout_s,
        max_connections=envoy.max_connections,
        max_heap_bytes=envoy.max_heap_bytes,
        access_log=envoy.access_log,
        trusted_proxies=envoy.trusted_proxies,
        tracing=HostPort.parse(envoy.tracing) if envoy.tracing else None,
        trace_percent=envoy.trace_percent,
    )


def _status_place(settings: Settings) -> HostPort:
    """The pages are where the picker is: on its host, when Envoy reaches that by another name."""
    pages = _reached_at(HostPort.parse(settings.listen.http))
    if settings.envoy.picker is None:
        return pages
    return HostPort(HostPort.parse(settings.envoy.picker).host, pages.port)


def _reached_at(place: HostPort) -> HostPort:
    """A picker that listens on all interfaces is reached over loopback."""
    try:
        listens_at = ipaddress.ip_address(place.host)
    except ValueError:
        return place
    if not listens_at.is_unspecified:
        return place
    return HostPort("127.0.0.1" if listens_at.version == 4 else "::1", place.port)
