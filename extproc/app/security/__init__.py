"""Tokens, certificates, CA bundles, and the refusal to be open by mistake."""
