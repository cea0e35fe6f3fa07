"""gRPC on the data plane's port, by a server of our own."""

from extproc.transport.call import Call, CallHandler, Metadata, ServeCall, ServiceTable

__all__ = ["Call", "CallHandler", "Metadata", "ServeCall", "ServiceTable"]
