"""Envoy's configuration, composed from Envoy's own typed messages and printed as YAML."""
