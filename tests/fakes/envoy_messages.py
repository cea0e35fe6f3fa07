"""ext_proc messages as Envoy 1.40 sends them, for tests without an Envoy."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.struct_pb2 import Struct

from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode

FILTER = "envoy.filters.http.ext_proc"
COMPLETION = "/v1/chat/completions"
LONG_BYTES = 20_000
"""Of a response that does not come with its headers."""


def header_map(message: pb.HttpHeaders, headers: Mapping[str, str | bytes]) -> None:
    """Envoy fills `raw_value` and leaves `value` empty."""
    for key, value in headers.items():
        header = message.headers.headers.add()
        header.key = key
        header.raw_value = value if isinstance(value, bytes) else value.encode()


def request_headers(
    path: str | None = COMPLETION,
    method: str = "POST",
    **headers: str | bytes,
) -> pb.ProcessingRequest:
    """The first message of a stream, of a request without a body.

    `x_request_id="a"` becomes the header x-request-id.
    """
    request = pb.ProcessingRequest()
    pseudo: dict[str, str | bytes] = {":method": method, ":authority": "llama"}
    if path is not None:
        pseudo[":path"] = path
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    header_map(request.request_headers, pseudo | named)
    request.request_headers.end_of_stream = True
    request.protocol_config.SetInParent()
    return request


def set_arrival(request: pb.ProcessingRequest, text: str) -> None:
    """The header that Envoy writes into a request, if it has several fronts."""
    header_map(request.request_headers, {"x-coxswain-arrived-at": text})


def with_body(request: pb.ProcessingRequest, *, is_duplex: bool = False) -> pb.ProcessingRequest:
    """The same with a body to follow; `is_duplex` for an Envoy in full-duplex mode."""
    request.request_headers.end_of_stream = False
    if is_duplex:
        request.protocol_config.request_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
        request.protocol_config.response_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    return request


def response_headers(
    status: str = "200",
    *,
    content_type: str = "application/json",
    body_bytes: int | None = LONG_BYTES,
    served: str = "",
    attempts: float | None = 1,
    details: str = "via_upstream",
    as_metadata: bool = False,
    more: Mapping[str, str] | None = None,
) -> pb.ProcessingRequest:
    """The second message; who served is told by an attribute, or by the policy's metadata."""
    request = pb.ProcessingRequest()
    is_unbounded = body_bytes is None or content_type.startswith("text/event-stream")
    length = {} if is_unbounded else {"content-length": str(body_bytes)}
    header_map(
        request.response_headers,
        {":status": status, "content-type": content_type, **length, **(more or {})},
    )
    attributes = Struct()
    if details:
        attributes["response.code_details"] = details
    if attempts is not None:
        attributes["upstream.request_attempt_count"] = attempts
    if as_metadata:
        metadata = request.metadata_context.filter_metadata["envoy.lb"].fields
        metadata["x-gateway-destination-endpoint-served"].string_value = served
    elif served:
        attributes["upstream.address"] = served
    request.attributes[FILTER] = attributes.SerializeToString()
    return request


def without_body(response: pb.ProcessingRequest) -> pb.ProcessingRequest:
    """The same of a response that has no body."""
    response.response_headers.end_of_stream = True
    return response


def body(data: bytes = b"", *, end_of_stream: bool = True) -> pb.ProcessingRequest:
    request = pb.ProcessingRequest()
    request.request_body.body = data
    request.request_body.end_of_stream = end_of_stream
    return request


def part(kind: str) -> pb.ProcessingRequest:
    """An empty message of that kind, e.g. `response_trailers`."""
    request = pb.ProcessingRequest()
    getattr(request, kind).SetInParent()
    return request


def unknown_kind() -> pb.ProcessingRequest:
    """A message of a later Envoy: field 99 of the oneof, which this picker does not know."""
    return pb.ProcessingRequest.FromString(bytes([(99 << 3 | 2) & 0x7F | 0x80, 99 >> 4, 0]))


# What came back


def set_headers(mutation: pb.HeaderMutation) -> dict[str, str]:
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}


def destination(response: pb.ProcessingResponse | None) -> list[str]:
    """Where the request was sent, first choice first."""
    assert response is not None and response.WhichOneof("response") == "request_headers"
    headers = set_headers(response.request_headers.response.header_mutation)
    value = headers.get("x-gateway-destination-endpoint", "")
    return value.split(",") if value else []


def rejection(response: pb.ProcessingResponse | None) -> tuple[int, str]:
    """The status and the reason of an immediate answer."""
    assert response is not None and response.WhichOneof("response") == "immediate_response"
    immediate = response.immediate_response
    return immediate.status.code, set_headers(immediate.headers)["x-coxswain-reason"]
