"""A service's calls for a gRPC server, with an error for bytes that are not a valid message.

The generated registration lets a question that cannot be parsed end as UNKNOWN with a
traceback in the log. Here it reaches the call as None, which `maps_errors` rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

MAKERS: Final = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def handlers_of(service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
    """The calls of `service`, each answered by the method of `servicer` that has its name."""
    handlers = {method.name: _handler(method, servicer) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handler(method: MethodDescriptor, servicer: object) -> grpc.RpcMethodHandler[Any, Any]:
    make = MAKERS[method.client_streaming, method.server_streaming]
    return make(
        getattr(servicer, method.name),
        request_deserializer=_reader(method),
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )


def _reader(method: MethodDescriptor) -> Callable[[bytes], Any]:
    parse = GetMessageClass(method.input_type).FromString

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            return None

    return read
