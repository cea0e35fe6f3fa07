"""Server reflection, so that `grpcurl -plaintext localhost:9003 list` works.

grpcio-reflection serves `grpc.reflection.v1alpha`. Its successor `v1` has the same messages
under another package name, so the same servicer answers both, byte for byte.
"""

from collections.abc import Iterable
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection, reflection_pb2

ALPHA: Final = reflection.SERVICE_NAME
V1: Final = "grpc.reflection.v1.ServerReflection"


def add_reflection(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Describe `services` (full names), and reflection itself, on `server`."""
    servicer: Any = reflection.aio.ReflectionServicer((*services, ALPHA), _PoolWithMethods())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (ALPHA, V1):
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}),)
        )


class _PoolWithMethods:
    """The pool of all our messages, which finds methods, too: protobuf's own finds services and
    no method of theirs, and `grpcurl describe coxswain.v1.Admin.Drain` asks for one."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 (the pool's)
        """Raises `KeyError` if nothing has that name."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            return found.file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)
