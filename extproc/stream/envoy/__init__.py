"""How Envoy asks and reports: messages, body modes, access log."""
