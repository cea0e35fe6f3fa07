"""The paths that only a llama-server has."""

from typing import Final

from extproc.runners.api import Api, kinds, rules
from extproc.security.path_rule import PathRule

QUERIED_PATHS: Final = frozenset({"/props", "/slots", "/metrics", "/lora-adapters"})
"""A GET of one of these belongs to a model of a router, if its query names one."""

STREAM_PATHS: Final = frozenset({"/v1/stream"})
"""A GET of one of these replays the answer of a conversation, a DELETE ends it. It belongs to the
server that has the conversation, and to the client that began it."""

STREAM_LOOKUP_PATHS: Final = frozenset({"/v1/streams/lookup"})
"""A POST to one of these says which conversations there are, of those that its body names."""

_WEB_PAGE: Final = (
    "GET /",
    "GET /_app*",  # what the page is built of, with a digest in each name
    "GET /recommended-mcp*",  # icons
    *(f"GET /*.{kind}" for kind in ("html", "js", "css", "json", "webmanifest")),
    *(f"GET /*.{kind}" for kind in ("ico", "png", "svg")),
)
"""llama-server's own page. No route of its API has a name with such an ending."""

LLAMA_SERVER: Final = Api(
    name="llama-server",
    slot_paths=kinds(
        generating=(
            "/completion",
            "/completions",
            "/chat/completions",
            "/responses",
            "/messages",
            "/infill",
            "/v1/infill",
            "/audio/transcriptions",
        ),
        embedding=(
            "/embedding",
            "/v1/embedding",
            "/embeddings",
            "/reranking",
            "/v1/reranking",
        ),
    ),
    counting_paths=frozenset(
        {
            "/apply-template",
            "/chat/completions/input_tokens",
            "/v1/chat/completions/input_tokens",
            "/responses/input_tokens",
            "/v1/responses/input_tokens",
        }
    ),
    other_paths=(
        *(PathRule(path, method) for path in STREAM_PATHS for method in ("GET", "DELETE")),
        *(PathRule(path, "POST") for path in STREAM_LOOKUP_PATHS),
        *rules("GET /props", *_WEB_PAGE),
    ),
    lenient_paths=frozenset({"/"}),
    closed_paths=rules(
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
