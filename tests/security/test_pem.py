"""Claims about extproc/security/pem.py."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from extproc.security.pem import are_certificates
from tests.fakes.authority import Authority


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
