"""Whom to take for a server behind TLS."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

_PUBLIC_PEM: Final = re.compile(
    rb"-----BEGIN (?:(?:X509 |TRUSTED )?CERTIFICATE|X509 CRL)-----[^-]*-----END [A-Z0-9 ]+-----"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whom to take for a server behind TLS, as Envoy is told it under the name `profile`.

    `authorities` are those of its certificate, PEM, None the system's where Envoy runs. `ip`
    is the address that the certificate must hold, None where it is the server's own name.
    """

    profile: str
    authorities: str | None = field(default=None, repr=False)
    ip: str | None = None


def profile_name(authorities: str, ip: str | None) -> str:
    """The name of the profile for servers of these authorities, whatever they go by."""
    return f"tls-{sha256(f'{authorities}|{ip or str()}'.encode()).hexdigest()[:12]}"


def told_trust(authorities: str, ip: str | None) -> Trust:
    """The trust in a server that tells its authorities itself, PEM; empty for the system's.

    Its profile goes by the content, for there is no file that two such servers share.
    """
    content = certificates_in(authorities.encode())
    name = f"sha256:{sha256(content.encode()).hexdigest()}" if content else ""
    return Trust(profile=profile_name(name, ip), authorities=content or None, ip=ip)


def certificates_in(content: bytes) -> str:
    """The certificates and revocations of a PEM file, without what else is in it: a key that
    lies beside them is not to be told."""
    return "\n".join(part.decode("ascii", "replace") for part in _PUBLIC_PEM.findall(content))
