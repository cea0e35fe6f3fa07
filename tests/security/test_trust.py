"""Claims about extproc/security/trust.py."""

from __future__ import annotations

from extproc.security.trust import certificates_in, profile_name, reported_trust

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
