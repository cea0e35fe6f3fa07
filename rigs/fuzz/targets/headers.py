"""Headers: a request's head or a rejection; a response's head in any case."""

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.subset_hints import SubsetHints
from extproc.header_names import (
    FILTER_ATTRIBUTES,
    LB_NAMESPACE,
    REQUEST_HEADERS,
    SERVED,
    SUBSET,
    SUBSET_NAMESPACE,
)
from extproc.pb import base_pb2
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.request.paths import Paths
from extproc.stream.request.subset import HintError, read_subset
from extproc.telemetry.trace_context import parse_trace_parent
from rigs.fuzz.reader import Reader

NAMES = (*sorted(REQUEST_HEADERS), ":status", "x-strange", "")
ATTRIBUTES = (
    "upstream.address",
    "upstream.request_attempt_count",
    "response.code_details",
)
PATHS = Paths("/llama")
MEMBERS = tuple(Address.parse(text) for text in ("10.0.0.1:8080", "10.0.0.2:80", "[::1]:9"))


def check(data: bytes) -> None:
    reader = Reader(data)
    message = pb.ProcessingRequest()
    if reader.flag():
        try:
            message = pb.ProcessingRequest.FromString(reader.rest())
        except DecodeError:
            return
    else:
        add_headers(message.request_headers.headers, reader)
        message.request_headers.end_of_stream = reader.flag()
        add_headers(message.response_headers.headers, reader, few=True)
        add_facts(message, reader)
    _read_request(message)
    head = codec.read_response_head(message)
    assert 0 <= head.status <= 999 and 1 <= head.attempts <= 100
    _read_hint(message)


def add_headers(headers: base_pb2.HeaderMap, reader: Reader, *, few: bool = False) -> None:
    """Headers of the names that are read, with whatever values."""
    for _ in range(reader.number(4 if few else 16)):
        headers.headers.add(key=reader.choice(NAMES), raw_value=reader.few())


def add_facts(message: pb.ProcessingRequest, reader: Reader) -> None:
    """Attributes of the answer, and metadata."""
    attributes = Struct()
    for name in ATTRIBUTES:
        if reader.flag():
            attributes[name] = reader.text()
        elif reader.flag():
            attributes[name] = float(reader.number(256)) * 1e300 ** reader.number(2)
    message.attributes[FILTER_ATTRIBUTES] = attributes.SerializeToString()
    metadata = message.metadata_context.filter_metadata
    if reader.flag():
        metadata[LB_NAMESPACE].fields[SERVED].string_value = reader.text()
    if reader.flag():
        hint = metadata[SUBSET_NAMESPACE].fields[SUBSET]
        if reader.flag():
            hint.string_value = reader.text()
        else:
            hint.list_value.extend([reader.text() for _ in range(reader.number(6))])


def _read_request(message: pb.ProcessingRequest) -> None:
    try:
        head = codec.read_request_head(message.request_headers)
    except codec.BadRequestError as error:
        head = error.head
        assert str(error)
    for text in (head.path, head.id, head.tenant, head.fairness_id, head.trace_parent):
        assert len(text) <= 1000
        text.encode()
    assert head.body_bytes is None or head.body_bytes >= 0
    assert head.queue_timeout_s is None or head.queue_timeout_s >= 0
    if PATHS.slot_kind(head.method, head.path) or PATHS.asks_for_models(head.method, head.path):
        assert not PATHS.is_closed(head.method, head.path)
    PATHS.is_closed(head.method, head.path)
    parse_trace_parent(head.trace_parent)


def _read_hint(message: pb.ProcessingRequest) -> None:
    fleet = Fleet()
    fleet.set_members("fuzz", [EndpointSpec(address=address) for address in MEMBERS])
    subsets = SubsetHints(fleet)
    try:
        hint = read_subset(message, subsets)
    except HintError:
        return
    if hint is not None:
        assert subsets.allowed(hint) <= set(MEMBERS)
        assert read_subset(message, subsets) is hint
