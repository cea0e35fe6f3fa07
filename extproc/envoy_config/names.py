"""Names of clusters, routes and filters in the configuration, and of Envoy's reasons."""

from typing import Final

STAT_PREFIX: Final = "coxswain"
LLAMA_CLUSTER: Final = "llama"
PICKER_CLUSTER: Final = "coxswain"
PICKER_AGAIN_CLUSTER: Final = "coxswain-again"
STATUS_CLUSTER: Final = "coxswain-status"
"""The picker's HTTP pages."""
BATCHES_CLUSTER: Final = "coxswain-batches"
"""The process that serves the API of batches."""

QUEUE_ROUTE: Final = "queue"
BATCHES_ROUTE: Final = "batches"

BATCHES_LOST: Final = "batches-lost"
BLOCKED_PATH: Final = "blocked-path"
UNKNOWN_PATH: Final = "unknown-path"
MALFORMED_HTTP: Final = "malformed-http"
PICKER_LOST: Final = "picker-lost"
SERVER_LOST: Final = "server-lost"
TOO_MANY_HEADERS: Final = "too-many-headers"
UNSUPPORTED_HTTP: Final = "unsupported-http"

REMOVALS_FILTER: Final = "coxswain.removals"
ARRIVAL_FILTER: Final = "coxswain.arrival"
USAGE_FILTER: Final = "coxswain.usage"
EXT_PROC_FILTER: Final = "envoy.filters.http.ext_proc"
AGAIN_FILTER: Final = "coxswain.again"
"""ext_proc once more, for a long body whose front was lost."""
EXT_PROC_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
"""The gRPC health service under which the picker says whether it takes requests."""
