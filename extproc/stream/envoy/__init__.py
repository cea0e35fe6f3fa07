"""The protocol with Envoy: messages, body modes and the access log stream."""
