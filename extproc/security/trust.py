"""How Envoy verifies a server behind TLS, and certificates in PEM.

The core may not import ssl, and the packages above the core may not import each other, so this is
beside the core for all of them.
"""

import re
import ssl
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

_PUBLIC_PEM: Final = re.compile(
    rb"-----BEGIN (?:(?:X509 |TRUSTED )?CERTIFICATE|X509 CRL)-----[^-]*-----END [A-Z0-9 ]+-----"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How Envoy verifies a server behind TLS, under the name `profile`.

    `ca_pem` has the CA certificates, None for the system's CA where Envoy runs. `ip` is
    the address that the certificate must hold, None if it must hold the server's name.
    """

    profile: str
    ca_pem: str | None = field(default=None, repr=False)
    ip: str | None = None


def profile_name(ca_pem: str, ip: str | None) -> str:
    """The name of the profile for servers with these CA certificates."""
    return f"tls-{sha256(f'{ca_pem}|{ip or str()}'.encode()).hexdigest()[:12]}"


def reported_trust(ca_pem: str, ip: str | None) -> Trust:
    """The trust for a server that reports its CA certificates itself, PEM; empty for the system's.

    The profile is named by the content, because such servers share no file.
    """
    content = certificates_in(ca_pem.encode())
    name = f"sha256:{sha256(content.encode()).hexdigest()}" if content else ""
    return Trust(profile=profile_name(name, ip), ca_pem=content or None, ip=ip)


def certificates_in(content: bytes) -> str:
    """The certificates and revocation lists of a PEM file, without anything else: a private key in
    the same file must not be passed on."""

    return "\n".join(part.decode("ascii", "replace") for part in _PUBLIC_PEM.findall(content))


def are_certificates(pem: str | None) -> bool:
    """Whether the text holds certificates and all of them are valid."""
    if not pem or not pem.isascii():
        return False
    # A trusted certificate is a plain one with trust settings after it; Envoy accepts it too.
    plain = pem.replace(" TRUSTED CERTIFICATE-----", " CERTIFICATE-----")
    try:
        context = ssl.create_default_context(cadata=plain)
    except ssl.SSLError:
        return False
    return context.cert_store_stats()["x509"] > 0
