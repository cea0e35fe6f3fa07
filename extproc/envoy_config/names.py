"""Names that the configuration shares with the picker, which answers in the same words."""

from typing import Final

DESTINATION: Final = "x-gateway-destination-endpoint"
"""The request header and metadata key with the picker's ordered endpoints."""

SERVED: Final = "x-gateway-destination-endpoint-served"
"""The metadata key with the endpoint that actually got the request."""

SUBSET: Final = "x-gateway-destination-endpoint-subset"
"""The metadata key of a gateway's hint; as a client's header it means nothing."""

EXCHANGE: Final = "x-coxswain-exchange"
"""The metadata key by which a report names the picker's exchange."""

UPLOAD: Final = "x-coxswain-upload"
"""The metadata key of a request whose body was not whole when the picker chose its server."""

LB_NAMESPACE: Final = "envoy.lb"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"

STAT_PREFIX: Final = "coxswain"
LLAMA_CLUSTER: Final = "llama"
PICKER_CLUSTER: Final = "coxswain"
STATUS_CLUSTER: Final = "coxswain-status"
"""The picker's HTTP pages."""

COXSWAIN_NAMESPACE: Final = "coxswain"
SERVER_AUTHORIZATION: Final = "authorization"
"""Endpoint metadata, from discovery: what to send as `authorization` to that server."""

TLS_PROFILE: Final = "coxswain_tls"
"""Endpoint metadata of Envoy's transport socket matches: which TLS profile to use."""

ABILITIES: Final = "x-coxswain-abilities"
"""With every discovery stream: the TLS profiles that this configuration holds, and `KEYS` where
it sends servers their keys. The picker withholds servers that need more."""
KEYS: Final = "keys"

ARRIVED_AT: Final = "x-coxswain-arrived-at"
"""A request header of Envoy's own, with fronts: when the request arrived, in seconds since 1970.
The place of a request that comes again from a front that stood still follows from it."""

CLIENT: Final = "x-coxswain-client"
"""The client's name in the keys file."""

REASON: Final = "x-coxswain-reason"
BLOCKED_PATH: Final = "blocked-path"
MALFORMED_HTTP: Final = "malformed-http"
PICKER_LOST: Final = "picker-lost"
SERVER_LOST: Final = "server-lost"
TOO_MANY_HEADERS: Final = "too-many-headers"
UNSUPPORTED_HTTP: Final = "unsupported-http"

USAGE: Final = "x-coxswain-usage"
"""With each stream of the usage filter: the picker's exchange whose response it carries."""

ARRIVAL_FILTER: Final = "coxswain.arrival"
USAGE_FILTER: Final = "coxswain.usage"
EXT_PROC_FILTER: Final = "envoy.filters.http.ext_proc"
EXT_PROC_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
"""The gRPC health service under which the picker says whether it takes requests."""
