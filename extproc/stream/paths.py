"""Which requests take a slot: llama.cpp's generating and embedding calls, as one table."""

from __future__ import annotations

from posixpath import normpath
from urllib.parse import unquote

from extproc.core.request import Kind

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
SLOT_PATHS = dict.fromkeys(_GENERATING, Kind.GENERATION) | dict.fromkeys(_EMBEDDING, Kind.EMBEDDING)
"""POST to one of these occupies a slot while it runs; all else is answered beside the slots."""

MODELS_PATHS = frozenset({"/v1/models", "/models"})
"""GET of one of these asks which models there are."""


def slot_kind(method: str, path: str) -> Kind | None:
    """What a request for `path` (with or without a query, however spelt) does with its slot.

    None when it takes none.
    """
    if method != "POST":
        return None
    plain = path.partition("?")[0].partition("#")[0]
    return SLOT_PATHS.get(plain) or SLOT_PATHS.get(normalised(plain))


def asks_for_models(method: str, path: str) -> bool:
    """Whether it asks which models there are."""
    return method == "GET" and (path in MODELS_PATHS or normalised(path) in MODELS_PATHS)


def normalised(path: str) -> str:
    """One spelling for a path: escapes decoded, dots resolved, slashes merged, no last slash."""
    return normpath("/" + unquote(path, errors="replace").lstrip("/"))
