"""Which requests take a slot: llama.cpp's generating and embedding calls, as one table."""

from __future__ import annotations

from posixpath import normpath
from urllib.parse import unquote

SLOT_PATHS = frozenset(
    {
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
        "/embedding",
        "/v1/embedding",
        "/embeddings",
        "/v1/embeddings",
        "/rerank",
        "/v1/rerank",
        "/reranking",
        "/v1/reranking",
        "/audio/transcriptions",
        "/v1/audio/transcriptions",
        "/api/chat",  # of older llama-servers
    }
)
"""POST to one of these occupies a slot while it runs; all else is answered beside the slots."""


def takes_slot(method: str, path: str) -> bool:
    """Whether a request for `path` (with or without a query, however spelt) takes a slot."""
    if method != "POST":
        return False
    plain = path.partition("?")[0].partition("#")[0]
    return plain in SLOT_PATHS or normalised(plain) in SLOT_PATHS


def normalised(path: str) -> str:
    """One spelling for a path: escapes decoded, dots resolved, slashes merged, no last slash."""
    return normpath("/" + unquote(path, errors="replace").lstrip("/"))
