"""Tokens, certificates, CA bundles, and the check for unprotected ports."""
