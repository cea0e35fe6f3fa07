"""A certificate authority of a test's own: certificates for loopback, good and expired ones."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """Writes what it issues into `folder`; `ca` is its own certificate."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name.replace(' ', '-')}.pem"
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.serial = f"{certificate.serial_number:x}"
        """Of its own certificate, in hexadecimal digits."""

    def issue(
        self, name: str, *, is_expired: bool = False, hosts: tuple[str, ...] = ("localhost",)
    ) -> Pair:
        """A certificate for 127.0.0.1 and `hosts`; an existing one of that name is replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        loopback = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            *map(x509.DNSName, hosts),
        ]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now - DAY if is_expired else now + DAY)
            .add_extension(x509.SubjectAlternativeName(loopback), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(cert=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair


def strange(ca: bytes) -> bytes:
    """The same certificate with the version of one that has no extensions, which this one does:
    OpenSSL minds it no more than Python does, and Envoy rejects it."""
    lines = ca.decode().splitlines()
    content = base64.b64decode("".join(lines[1:-1]))
    third, first = bytes.fromhex("a003020102"), bytes.fromhex("a003020100")
    assert third in content
    body = base64.encodebytes(content.replace(third, first, 1)).decode()
    return f"{lines[0]}\n{body}{lines[-1]}\n".encode()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
