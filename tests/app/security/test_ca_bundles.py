"""Claims about extproc/app/security/ca_bundles.py, through the listings that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.app.discovery.entries import entries_of
from extproc.security.trust import certificates_in
from extproc.settings import EndpointSettings, SettingsError
from tests.fakes.authority import Authority

REVOKED = b"-----BEGIN X509 CRL-----\nYQ==\n-----END X509 CRL-----\n"


def secured(ca_file: Path, host: str = "gpu.example") -> EndpointSettings:
    return EndpointSettings(address=f"https://{host}:8080", ca_file=str(ca_file))


def test_only_what_is_public_is_taken_from_a_file_of_cas(tmp_path: Path) -> None:
    """A key that lies in the same file stays there, and so do remarks."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    file = tmp_path / "all.pem"
    parts = (b"# caf\xc3\xa9\n", authority.ca.read_bytes(), pair.key.read_bytes())
    file.write_bytes(b"".join(parts) + pair.cert.read_bytes())
    (entry,) = entries_of([secured(file)])
    assert entry.trust is not None and entry.trust.ca_pem is not None
    assert entry.trust.ca_pem.count("BEGIN CERTIFICATE") == 2
    assert "PRIVATE" not in entry.trust.ca_pem
    assert authority.ca.read_text().strip() in entry.trust.ca_pem
    assert certificates_in(REVOKED).encode() == REVOKED.strip()


def test_whom_to_trust_follows_the_content_and_its_name_does_not(tmp_path: Path) -> None:
    """So that Envoy goes on with a server while the CAs are renewed."""
    file = tmp_path / "ca.pem"
    trusts = []
    for name in ("one", "two"):
        file.write_bytes(Authority(tmp_path, name).ca.read_bytes())
        trusts.append(entries_of([secured(file)])[0].trust)
    before, after = trusts
    assert before is not None and after is not None and before != after
    assert before.profile == after.profile


def test_an_ip_address_must_stand_in_the_certificate_itself(tmp_path: Path) -> None:
    by_ip, by_name = entries_of(
        [secured(Authority(tmp_path).ca, "10.0.0.5"), EndpointSettings(address="https://gpu:1")]
    )
    assert by_ip.trust is not None and by_ip.trust.ip == "10.0.0.5"
    assert by_name.trust is not None
    assert (by_name.trust.ip, by_name.trust.ca_pem) == (None, None)


def test_a_file_without_certificates_is_no_file_of_cas(tmp_path: Path) -> None:
    """Nobody to trust must never come out as everybody."""
    for number, content in enumerate((b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\n", REVOKED)):
        file = tmp_path / f"{number}.pem"
        file.write_bytes(content)
        with pytest.raises(SettingsError, match="no certificates"):
            entries_of([secured(file)])
