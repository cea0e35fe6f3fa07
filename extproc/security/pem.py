"""Certificates as people hand them over, in PEM. The core may not know ssl, and the parts above it
not each other, so this stands beside the core for all of them."""

from __future__ import annotations

import ssl


def are_certificates(pem: str | None) -> bool:
    """Whether somebody is trusted by this text; one broken certificate in it is enough for no."""
    if not pem or not pem.isascii():
        return False
    # A trusted certificate is a plain one with remarks behind it, which Envoy takes, too.
    plain = pem.replace(" TRUSTED CERTIFICATE-----", " CERTIFICATE-----")
    try:
        context = ssl.create_default_context(cadata=plain)
    except ssl.SSLError:
        return False
    return context.cert_store_stats()["x509"] > 0
