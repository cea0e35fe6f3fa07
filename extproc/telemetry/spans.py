"""The spans of one ended exchange, as OTLP messages.

    coxswain.exchange             from its first message to its end, below the caller's span
      coxswain.pick               the decision, once enough of the request had come
      coxswain.queue              its wait, if it waited

    coxswain.model.load           from the decision to load a model on a machine to its end
      coxswain.model.drain        the time until others had left memory for it

Names of attributes are those of OpenTelemetry's semantic conventions 1.44.0: HTTP server spans
(stable) and GenAI (in development); `coxswain.*` are ours.

They are built once the exchange is over, from its record: nothing is measured, allocated or
carried along while a request runs. The messages are made directly: by way of the SDK's own
span objects one exchange costs five times as much.
"""

from random import Random
from typing import Final, NamedTuple

from opentelemetry.proto.trace.v1 import trace_pb2

from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.placement.load_record import LoadRecord
from extproc.telemetry.metrics import outcome
from extproc.telemetry.trace_context import TraceParent

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/chat/completions": "chat",
    "/v1/responses": "chat",
    "/responses": "chat",
    "/v1/messages": "chat",
    "/messages": "chat",
    "/v1/completions": "text_completion",
    "/completions": "text_completion",
    "/completion": "text_completion",
    "/infill": "text_completion",
    "/v1/embeddings": "embeddings",
    "/embeddings": "embeddings",
    "/embedding": "embeddings",
}
"""The values of `gen_ai.operation.name` by path."""

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the attributes follow."""
METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
"""The values of `http.request.method`; any other method is `_OTHER`."""
_SAMPLED: Final = 0x01
_LOCAL_PARENT: Final = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE_PARENT: Final = _LOCAL_PARENT | trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
MAX_CHARS: Final = 256
"""Longer texts are cut: a client writes paths and request ids, and pays nothing for them."""
_FAILED: Final = frozenset({Outcome.REJECTED, Outcome.BROKEN})
_NS: Final = 1_000_000_000


class Server(NamedTuple):
    """The endpoint's name in the settings, and the model that answered there by its own name; empty
    where they are not known."""

    name: str = ""
    model: str = ""


UNKNOWN_SERVER: Final = Server()


def exchange_spans(
    record: ExchangeRecord,
    trace_id: str,
    parent: TraceParent | None,
    ended_at_ns: int,
    random: Random,
    server: Server = UNKNOWN_SERVER,
) -> list[trace_pb2.Span]:
    """Up to three spans, the exchange first. `ended_at_ns` is Unix time."""
    began_at_ns = ended_at_ns - int(record.duration_s * _NS)
    trace = bytes.fromhex(trace_id)
    root = _span(trace, "coxswain.exchange", began_at_ns, ended_at_ns, random)
    root.kind = trace_pb2.Span.SPAN_KIND_SERVER
    if parent is not None:
        root.flags = _SAMPLED | _REMOTE_PARENT
        root.parent_span_id = bytes.fromhex(parent.span_id)
    error = error_type(record)
    if error:
        root.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        root.status.message = outcome(record)
        _put(root, "error.type", error)
    _describe(root, record, server)
    if record.outcome is Outcome.PASSED or record.decided_at is None:
        return [root]
    decided_at_ns = began_at_ns + int((record.decided_at - record.began_at) * _NS)
    picked_at_ns = min(ended_at_ns, decided_at_ns + int(record.pick_s * _NS))
    spans = [root, _child(root, "coxswain.pick", decided_at_ns, picked_at_ns, random)]
    if record.waited_s > 0:
        settled_at_ns = min(ended_at_ns, decided_at_ns + int(record.waited_s * _NS))
        queue = _child(root, "coxswain.queue", decided_at_ns, settled_at_ns, random)
        _put(queue, "coxswain.criticality", record.criticality)
        spans.append(queue)
    return spans


def load_spans(
    record: LoadRecord, trace_id: str, ended_at_ns: int, random: Random
) -> list[trace_pb2.Span]:
    """The spans of a load that ended at `ended_at_ns` (Unix time), the load first."""
    began_at_ns = ended_at_ns - int((record.ended_at - record.decided_at) * _NS)
    trace = bytes.fromhex(trace_id)
    root = _span(trace, "coxswain.model.load", began_at_ns, ended_at_ns, random)
    if record.problem:
        root.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        root.status.message = record.problem[:MAX_CHARS]
        _put(root, "error.type", "load-failed")
    _put(root, "coxswain.model", record.model)
    _put(root, "coxswain.machine", record.machine)
    _put(root, "coxswain.load.reason", record.reason)
    _put(root, "coxswain.load.drain_s", record.drain_s)
    _put(root, "coxswain.load.load_s", record.load_s)
    _put(root, "coxswain.load.displaced", ", ".join(record.displaced))
    if record.drain_s <= 0.0:
        return [root]
    drained_at_ns = began_at_ns + int(record.drain_s * _NS)
    return [root, _child(root, "coxswain.model.drain", began_at_ns, drained_at_ns, random)]


def _child(
    root: trace_pb2.Span, name: str, began_at_ns: int, ended_at_ns: int, random: Random
) -> trace_pb2.Span:
    span = _span(root.trace_id, name, began_at_ns, ended_at_ns, random)
    span.parent_span_id = root.span_id
    return span


def _span(
    trace_id: bytes, name: str, began_at_ns: int, ended_at_ns: int, random: Random
) -> trace_pb2.Span:
    return trace_pb2.Span(
        trace_id=trace_id,
        span_id=(random.getrandbits(64) or 1).to_bytes(8),
        name=name,
        kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=began_at_ns,
        end_time_unix_nano=ended_at_ns,
        flags=_SAMPLED | _LOCAL_PARENT,
    )


def error_type(record: ExchangeRecord) -> str:
    """The value of `error.type`: the reason of a rejection, a status from 500, or `broken`; empty
    without an error. A 4xx of a server is no error of the exchange."""
    if record.outcome in _FAILED:
        return outcome(record)
    return str(record.status) if record.status >= 500 else ""


def _describe(span: trace_pb2.Span, record: ExchangeRecord, server: Server) -> None:
    _put(span, "coxswain.outcome", outcome(record))
    _put(span, "coxswain.exchange.id", record.exchange_id)
    _put(span, "coxswain.request.id", record.request_id)
    if record.method:
        is_known = record.method in METHODS
        _put(span, "http.request.method", record.method if is_known else "_OTHER")
        _put(span, "http.request.method_original", None if is_known else record.method)
    _put(span, "url.path", record.path)
    if record.path in OPERATIONS:
        _put(span, "gen_ai.operation.name", OPERATIONS[record.path])
        _put(span, "gen_ai.provider.name", "llama.cpp")
    _put(span, "gen_ai.request.model", record.model)
    _put(span, "gen_ai.response.model", server.model)
    _put(span, "gen_ai.usage.input_tokens", record.input_tokens)
    _put(span, "gen_ai.usage.output_tokens", record.output_tokens)
    _put(span, "coxswain.endpoint.name", server.name)
    _put(span, "coxswain.client", record.client)
    if record.endpoint is not None:
        _put(span, "server.address", record.endpoint.host)
        _put(span, "server.port", record.endpoint.port)
    _put(span, "http.response.status_code", record.status or None)
    _put(span, "coxswain.attempts", record.attempts or None)
    if record.outcome is not Outcome.PASSED:
        _put(span, "coxswain.criticality", record.criticality)
        _put(span, "coxswain.queue.wait_s", record.waited_s)
    _put(span, "coxswain.time_to_first_token_s", record.first_token_s)


def _put(span: trace_pb2.Span, key: str, value: str | float | None) -> None:
    """Add an attribute, unless it has no value: an empty text, or None."""
    if value is None or value == "":
        return
    attribute = span.attributes.add()
    attribute.key = key
    if isinstance(value, str):
        attribute.value.string_value = value[:MAX_CHARS]
    elif isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.double_value = value
