"""TLS on Envoy's side: towards the picker, and the servers by the profiles discovery names."""

from __future__ import annotations

import ipaddress

from envoy_data_plane.envoy.config.cluster.v3 import ClusterTransportSocketMatch
from envoy_data_plane.envoy.config.core.v3 import DataSource, TransportSocket
from envoy_data_plane.envoy.extensions.transport_sockets.raw_buffer.v3 import RawBuffer
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    TlsCertificate,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.google.protobuf import Struct

from extproc.envoy_config import names
from extproc.envoy_config.messages import typed
from extproc.envoy_config.trust import PickerTls, TlsProfile


def socket_matches(profiles: tuple[TlsProfile, ...]) -> list[ClusterTransportSocketMatch]:
    """The socket for each profile; a server without one is spoken to in the clear."""
    if not profiles:
        return []
    found = [
        ClusterTransportSocketMatch(
            name=profile.name,
            match=Struct.from_dict({names.TLS_PROFILE: profile.name}),
            transport_socket=_tls(profile.server_name, profile.ca_file),
        )
        for profile in profiles
    ]
    plain = TransportSocket(
        name="envoy.transport_sockets.raw_buffer", typed_config=typed(RawBuffer())
    )
    return [
        *found,
        ClusterTransportSocketMatch(name="plain", match=Struct(), transport_socket=plain),
    ]


def picker_socket(tls: PickerTls) -> TransportSocket:
    """The socket towards the picker."""
    shown = None
    if tls.cert_file is not None and tls.key_file is not None:
        shown = TlsCertificate(
            certificate_chain=DataSource(filename=tls.cert_file),
            private_key=DataSource(filename=tls.key_file),
        )
    return _tls(tls.server_name, tls.ca_file, shown, "h2")


def _tls(
    server_name: str, ca_file: str, shown: TlsCertificate | None = None, protocol: str = "http/1.1"
) -> TransportSocket:
    has_address = is_ip(server_name)
    san_type = (
        SubjectAltNameMatcherSanType.IP_ADDRESS if has_address else SubjectAltNameMatcherSanType.DNS
    )
    context = UpstreamTlsContext(
        sni="" if has_address else server_name,
        common_tls_context=CommonTlsContext(
            tls_certificates=[shown] if shown is not None else [],
            alpn_protocols=[protocol],
            validation_context=CertificateValidationContext(
                trusted_ca=DataSource(filename=ca_file),
                match_typed_subject_alt_names=[
                    SubjectAltNameMatcher(
                        san_type=san_type, matcher=StringMatcher(exact=server_name)
                    )
                ],
            ),
        ),
    )
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=typed(context))


def is_ip(host: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
