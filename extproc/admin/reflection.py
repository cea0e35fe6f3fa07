"""Server reflection, so that `grpcurl -plaintext localhost:9003 list` works.

grpcio-reflection serves `grpc.reflection.v1alpha`. Its successor `v1` has the same messages
under another package name, so the same servicer answers both, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

ALPHA: Final = reflection.SERVICE_NAME
V1: Final = "grpc.reflection.v1.ServerReflection"


def add_reflection(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Describe `services` (full names), and reflection itself, on `server`."""
    servicer: Any = reflection.aio.ReflectionServicer(service_names=(*services, ALPHA))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (ALPHA, V1):
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}),)
        )
