"""gRPC on the data plane's port: a server of our own, and grpcio behind the same calls."""

from extproc.transport.call import Call, CallHandler, Metadata, ServeCall, ServiceTable

__all__ = ["Call", "CallHandler", "Metadata", "ServeCall", "ServiceTable"]
