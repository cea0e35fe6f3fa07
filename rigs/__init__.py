"""Rigs: long attacks on the whole product over real Envoy, each one command."""
