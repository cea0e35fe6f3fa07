"""The ext_proc service: Envoy's questions in, destinations out, leases as long as streams."""
