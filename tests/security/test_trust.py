"""Claims about extproc/security/trust.py."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from extproc.security.trust import are_certificates, certificates_in, profile_name, reported_trust
from tests.fakes.authority import Authority

PEM = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nYg==\n-----END PRIVATE KEY-----"


def test_only_public_parts_are_taken() -> None:
    assert (
        certificates_in(f"# caf\N{LATIN SMALL LETTER E WITH ACUTE}\n{KEY}\n{PEM}\n".encode()) == PEM
    )


def test_a_profile_depends_on_ca_and_ip() -> None:
    names = {profile_name(file, ip) for file in ("", "/ca.pem") for ip in (None, "10.0.0.5")}
    assert len(names) == 4


def test_reported_ca_certificates_are_identified_by_content() -> None:
    """With any text around them; and the system's CA by its usual name."""
    assert reported_trust(PEM, None) == reported_trust(f"{KEY}\n{PEM}\n", None)
    assert reported_trust(PEM, None).profile != reported_trust(PEM, "10.0.0.5").profile
    system = reported_trust("", None)
    assert (system.profile, system.ca_pem) == (profile_name("", None), None)


def test_certificates_are_distinguished_from_everything_else(tmp_path: Path) -> None:
    one, other = (Authority(tmp_path, name).ca.read_text() for name in ("one", "other"))
    assert are_certificates(one) and are_certificates(one + other)
    assert are_certificates(f"a remark\n{one}")
    for nothing in (None, "", "a remark"):
        assert not are_certificates(nothing)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n\ufffd\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n",
    ],
)
def test_one_invalid_certificate_invalidates_all(tmp_path: Path, text: str) -> None:
    assert not are_certificates(text)
    assert not are_certificates(Authority(tmp_path).ca.read_text() + text)


def test_a_trusted_certificate_is_one(tmp_path: Path) -> None:
    """In the form that `openssl x509 -trustout` writes, here without trust settings."""
    lines = Authority(tmp_path).ca.read_text().splitlines()
    content = base64.b64decode("".join(lines[1:-1])) + b"\x30\x00"
    body = base64.encodebytes(content).decode()
    kind = "TRUSTED CERTIFICATE-----"
    assert are_certificates(f"-----BEGIN {kind}\n{body}-----END {kind}\n")
