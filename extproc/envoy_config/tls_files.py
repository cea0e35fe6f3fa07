"""Certificate and key files as values."""

from dataclasses import dataclass, field

SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"


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
