"""The ext_proc service: it receives Envoy's messages and returns destinations."""
