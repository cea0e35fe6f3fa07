"""Certificates in PEM. The core may not import ssl, and the packages above the core may not import
each other, so this module is beside the core for all of them."""

import ssl


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
