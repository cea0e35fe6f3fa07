"""The names of headers and metadata by which the picker, Envoy and its configuration speak.

Elsewhere are those that go with one rule: rate limits (`extproc/stream/envoy/codec/rate_limits.py`)
and how long Envoy waits (`extproc/transport/long_wait.py`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# The picker's answer, and what came of it

DESTINATION: Final = "x-gateway-destination-endpoint"
"""The request header and metadata key with the picker's ordered endpoints."""
SERVED: Final = "x-gateway-destination-endpoint-served"
"""The metadata key with the endpoint that actually got the request."""
SUBSET: Final = "x-gateway-destination-endpoint-subset"
"""The metadata key of a gateway's hint; as a client's header it means nothing."""
EXCHANGE: Final = "x-coxswain-exchange"
"""The metadata key by which a report names the picker's exchange."""
UPLOAD: Final = "x-coxswain-upload"
"""The metadata key of a request whose body was incomplete when it got its server."""
UNBOUNDED: Final = "x-coxswain-unbounded"
"""The metadata key of a response whose headers do not say how long it is: Envoy reports its end,
however it ends."""
MAX_RETRIES: Final = "x-envoy-max-retries"
"""Envoy's router reads it and removes it."""
LB_NAMESPACE: Final = "envoy.lb"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
FILTER_ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
"""The key of the attributes in Envoy's messages."""

# Of a request

QUEUE_TIMEOUT: Final = "x-coxswain-queue-timeout-ms"
TTFT: Final = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
OBJECTIVE: Final = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FAIRNESS_ID: Final = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
MODEL: Final = "x-gateway-model-name"
"""The model that a gateway read in the body; servers may see it."""
ADAPTER: Final = "x-lora-adapter"
SESSION: Final = "x-session-id"
CONVERSATION: Final = "x-conversation-id"
"""llama-server keeps the answer under this id, and goes on when the client leaves."""
REQUEST_ID: Final = "x-request-id"
TRACE_PARENT: Final = "traceparent"
CREDENTIALS: Final = ("authorization", "x-api-key")
UNUSED: Final = (
    *("x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"),
    *("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms"),
)
"""Headers of other endpoint pickers: ignored, and removed before the server."""
CONTROL_HEADERS: Final = frozenset(
    {QUEUE_TIMEOUT, ADAPTER, *TTFT, *OBJECTIVE, *FAIRNESS_ID, *UNUSED}
)
"""Those of a request that are for the picker alone: it removes them before the server, and so does
Envoy where it does not ask."""
REQUEST_HEADERS: Final = CONTROL_HEADERS | {
    *(":method", ":path", REQUEST_ID, TRACE_PARENT, SESSION, CONVERSATION, MODEL),
    *CREDENTIALS,
    *("content-type", "content-encoding", "content-length"),
}
RESPONSE_HEADERS: Final = frozenset({":status", "content-type", "content-length", "retry-after"})
"""The headers that the picker reads. Envoy's configuration sends no others: each costs time with
every request, and cookies are none of the picker's business."""
ARRIVED_AT: Final = "x-coxswain-arrived-at"
"""Envoy's own, with fronts: when the request arrived, in seconds since 1970. The place of a request
that comes again from a front that stood still follows from it. Envoy removes it again."""
CLIENT: Final = "x-coxswain-client"
"""For the server: the name of the client whose key was checked and removed."""

# Of a response

ENDPOINT: Final = "x-coxswain-endpoint"
ATTEMPTS: Final = "x-coxswain-attempts"
QUEUE_MS: Final = "x-coxswain-queue-ms"
TIER: Final = "x-coxswain-tier"
"""Of a response from an endpoint of a higher tier than the first."""
REASON: Final = "x-coxswain-reason"
"""Of a rejection, by the picker or by Envoy."""

# Of a response to a web page of another origin

READABLE: Final[Mapping[str, str]] = MappingProxyType(
    {"access-control-allow-origin": "*", "access-control-expose-headers": "*"}
)
"""Any page may read the response with all of its headers, as it may read a llama-server's."""
PREFLIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        # Browsers do not count `authorization` among all headers.
        "access-control-allow-headers": "authorization, *",
        "access-control-max-age": "3600",
    }
)
"""The answer to a preflight (`OPTIONS`), in which a browser asks what a page may do. llama-server
allows the same."""

# Of Envoy's own calls to the picker

USAGE: Final = "x-coxswain-usage"
"""With each stream of the usage filter: the picker's exchange whose response it carries."""
ABILITIES: Final = "x-coxswain-abilities"
"""With every discovery stream: the TLS profiles that the configuration holds, `KEYS` where it
sends servers their keys, and `REUSE` where its routes allow connections to be used again, with
commas between them; may be given several times."""
KEYS: Final = "keys"
REUSE: Final = "reuse"

# Of an endpoint, from discovery

TLS_PROFILE: Final = "coxswain_tls"
"""Which TLS profile Envoy's socket to the server has."""
COXSWAIN_NAMESPACE: Final = "coxswain"
SERVER_AUTHORIZATION: Final = "authorization"
"""What to send as `authorization` to that server."""
