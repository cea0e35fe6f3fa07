"""The paths of llama-server: which of them take a slot, and which are open to clients.

A path that is not in the table of open paths reaches no server, unless the settings open it. If it
is in the table of closed paths, clients get 403; all others are unknown, and clients get 404.
"""

from typing import Final

from extproc.core.request import Kind
from extproc.security.path_rule import PathRule

_GENERATING = (
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
    "/responses",
    "/v1/responses",
    "/messages",
    "/v1/messages",
    "/infill",
    "/v1/infill",
    "/audio/transcriptions",
    "/v1/audio/transcriptions",
    "/api/chat",  # of older llama-servers
)
_EMBEDDING = (
    "/embedding",
    "/v1/embedding",
    "/embeddings",
    "/v1/embeddings",
    "/rerank",
    "/v1/rerank",
    "/reranking",
    "/v1/reranking",
)
SLOT_PATHS: Final = dict.fromkeys(_GENERATING, Kind.GENERATION) | dict.fromkeys(
    _EMBEDDING, Kind.EMBEDDING
)
"""A POST to one of these uses a slot while it runs; all other requests need no slot."""

MODELS_PATHS: Final = frozenset({"/v1/models", "/models"})
"""A GET of one of these lists the models."""

MODEL_PATHS: Final = "(/v1)?/models/(.+)"
"""A GET of one of these, a regular expression, shows the model whose name comes last. The picker
answers it; llama-server has no such route."""

HEALTH_PATHS: Final = frozenset({"/health", "/v1/health"})
"""A GET of one of these shows a server's health."""

COUNTING_PATHS: Final = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/chat/completions/input_tokens",
        "/v1/chat/completions/input_tokens",
        "/responses/input_tokens",
        "/v1/responses/input_tokens",
        "/v1/messages/count_tokens",
        "/api/show",  # of older llama-servers
    }
)
"""A POST to one of these belongs to a model, which its body names, and takes no slot."""

QUERIED_PATHS: Final = frozenset({"/props", "/slots", "/metrics", "/lora-adapters"})
"""A GET of one of these belongs to a model of a router, if its query names one."""

STREAM_PATHS: Final = frozenset({"/v1/stream"})
"""A GET of one of these replays the answer of a conversation, a DELETE ends it. It belongs to the
server that has the conversation, and to the client that began it."""

STREAM_LOOKUP_PATHS: Final = frozenset({"/v1/streams/lookup"})
"""A POST to one of these says which conversations there are, of those that its body names."""

_BESIDE_SLOTS = (
    "GET /health",
    "GET /v1/health",
    "GET /v1/models",
    "GET /models",
    "GET /props",
    "GET /api/tags",  # of older llama-servers
)
_WEB_PAGE = (
    "GET /",
    "GET /_app*",  # what the page is built of, with a digest in each name
    "GET /recommended-mcp*",  # icons
    *(f"GET /*.{kind}" for kind in ("html", "js", "css", "json", "webmanifest")),
    *(f"GET /*.{kind}" for kind in ("ico", "png", "svg")),
)
"""llama-server's own page. No route of its API has a name with such an ending."""

OPEN_PATHS: Final = (
    *(PathRule(path, "POST") for path in SLOT_PATHS),
    *(PathRule(path, "POST") for path in sorted(COUNTING_PATHS)),
    *(PathRule(path, method) for path in STREAM_PATHS for method in ("GET", "DELETE")),
    *(PathRule(path, "POST") for path in STREAM_LOOKUP_PATHS),
    *map(PathRule.parse, _BESIDE_SLOTS),
    *map(PathRule.parse, _WEB_PAGE),
)
"""The paths of llama-servers of any version that are open unless the settings say otherwise."""

CLOSED_PATHS: Final = tuple(
    map(
        PathRule.parse,
        (
            "/slots*",  # shows other clients' requests; saves, restores and erases caches
            "/metrics",  # each scrape resets the averages
            "POST /props",  # as all up to the models', changes the server for all clients
            "/lora-adapters*",
            "POST /models",
            "DELETE /models",
            "/models/load",
            "/models/unload",
            "/models/sse",
            "/tools*",  # includes a shell
            "/cors-proxy*",  # fetches any address that the server reaches
            "/predict",  # its body names any other route
            "/v1/chat/completions/control",  # concerns one server, and any may get it
        ),
    )
)
"""Paths that are closed on purpose, unless the settings open them."""

CLOSED: Final = (
    "This path is closed here. Open are the paths of llama-server that answer model requests, "
    "its models, health and properties, and its web page."
)
"""The message for a request to one of these."""

UNKNOWN: Final = (
    "Nothing is served at this path by this method. Served are the paths of llama-server that "
    "answer model requests, its models, health and properties, and its web page."
)
"""The message for a request to any other path."""
