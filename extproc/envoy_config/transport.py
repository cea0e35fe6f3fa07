"""TLS of Envoy's connections to the picker and to the servers, by TLS profile."""

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

from extproc import header_names
from extproc.core.address import is_ip
from extproc.envoy_config.messages import typed
from extproc.envoy_config.options import EnvoyOptions, OptionsError, PickerTls, TlsProfile

NAMES_IN_A_HEADER = 100


def socket_matches(profiles: tuple[TlsProfile, ...]) -> list[ClusterTransportSocketMatch]:
    """The socket for each profile; connections to a server without one are unencrypted."""
    if not profiles:
        return []
    found = [
        ClusterTransportSocketMatch(
            name=profile.name,
            match=Struct.from_dict({header_names.TLS_PROFILE: profile.name}),
            transport_socket=_tls(profile.server_name, _trusted_ca(profile)),
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


def abilities(options: EnvoyOptions) -> list[tuple[str, str]]:
    """What discovery learns of this configuration, in parts that every proxy lets pass."""
    found = [profile.name for profile in options.tls_profiles]
    if options.injects_keys:
        found.append(header_names.KEYS)
    if options.envoy.reuse_connections:
        found.append(header_names.REUSE)
    return [
        (header_names.ABILITIES, ",".join(found[start : start + NAMES_IN_A_HEADER]))
        for start in range(0, len(found), NAMES_IN_A_HEADER)
    ]


def picker_socket(tls: PickerTls) -> TransportSocket:
    """The transport socket for the picker."""
    shown = None
    if tls.cert_file is not None and tls.key_file is not None:
        shown = TlsCertificate(
            certificate_chain=DataSource(filename=tls.cert_file),
            private_key=DataSource(filename=tls.key_file),
        )
    return _tls(tls.server_name, DataSource(filename=tls.ca_file), shown, "h2")


def _trusted_ca(profile: TlsProfile) -> DataSource:
    if profile.ca_pem is None:
        return DataSource(filename=profile.ca_file)
    if not profile.ca_pem:
        raise OptionsError(f"{profile.name} has no CA: Envoy would then accept any certificate")
    return DataSource(inline_string=profile.ca_pem)


def _tls(
    server_name: str | None,
    trusted_ca: DataSource,
    shown: TlsCertificate | None = None,
    protocol: str = "http/1.1",
) -> TransportSocket:
    """Without a server name, the host name of each server is asked for and looked for."""
    is_named = server_name is not None and not is_ip(server_name)
    context = UpstreamTlsContext(
        sni=server_name or "" if is_named else "",
        auto_host_sni=server_name is None,
        auto_sni_san_validation=server_name is None,
        common_tls_context=CommonTlsContext(
            tls_certificates=[shown] if shown is not None else [],
            alpn_protocols=[protocol],
            validation_context=CertificateValidationContext(
                trusted_ca=trusted_ca,
                match_typed_subject_alt_names=_names(server_name),
            ),
        ),
    )
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=typed(context))


def _names(server_name: str | None) -> list[SubjectAltNameMatcher]:
    """The name to find in the certificate, none where the SNI is looked for."""
    if server_name is None:
        return []
    kind = SubjectAltNameMatcherSanType
    return [
        SubjectAltNameMatcher(
            san_type=kind.IP_ADDRESS if is_ip(server_name) else kind.DNS,
            matcher=StringMatcher(exact=server_name),
        )
    ]
