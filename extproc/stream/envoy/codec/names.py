"""The names of the call, headers, metadata namespaces and modes on the wire."""

from typing import Final

PROCESS: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
DESTINATION: Final = "x-gateway-destination-endpoint"
SERVED: Final = "x-gateway-destination-endpoint-served"
EXCHANGE: Final = "x-coxswain-exchange"
UPLOAD: Final = "x-coxswain-upload"
"""Set for a request whose body was incomplete when it got its server."""
MAX_RETRIES: Final = "x-envoy-max-retries"
"""Envoy's router reads it and removes it."""
LB_NAMESPACE: Final = "envoy.lb"
FILTER_ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
ARRIVED_AT: Final = "x-coxswain-arrived-at"
"""With fronts: when Envoy got the request, in seconds since 1970. Envoy removes it again."""
QUEUE_TIMEOUT: Final = "x-coxswain-queue-timeout-ms"
TRACE_PARENT: Final = "traceparent"
TTFT: Final = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
MODEL: Final = "x-gateway-model-name"
"""The model that a gateway read in the body; servers may see it."""
ADAPTER: Final = "x-lora-adapter"
SESSION: Final = "x-session-id"
OBJECTIVE: Final = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FAIRNESS_ID: Final = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
UNUSED: Final = (
    *("x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"),
    *("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms"),
)
"""Headers of other endpoint pickers: ignored, and removed before the server."""
CREDENTIALS: Final = ("authorization", "x-api-key")
CLIENT: Final = "x-coxswain-client"
"""For the server: the name of the client whose key was checked and removed."""
CONTROL_HEADERS: Final = frozenset(
    {QUEUE_TIMEOUT, ADAPTER, *TTFT, *OBJECTIVE, *FAIRNESS_ID, *UNUSED}
)
"""Control headers, which are removed before the server."""
STREAMED: Final = 1
"""`ProcessingMode.BodySendMode`: each chunk waits in Envoy for its answer."""
FULL_DUPLEX: Final = 4
"""`ProcessingMode.BodySendMode`: chunks flow both ways, and nobody waits for an answer."""
READABLE_MODES: Final = frozenset({0, 2, 3, FULL_DUPLEX})
"""Not streamed chunk by chunk: then the destination would be due before the first chunk, unless
Envoy sends the body without waiting."""
REQUEST_HEADERS: Final = CONTROL_HEADERS | {
    *(":method", ":path", "x-request-id", TRACE_PARENT, SESSION, MODEL),
    *CREDENTIALS,
    *("content-type", "content-encoding", "content-length"),
}
RESPONSE_HEADERS: Final = frozenset({":status", "content-type", "content-length"})
"""The headers that Coxswain reads; the printed Envoy configuration sends no others."""
