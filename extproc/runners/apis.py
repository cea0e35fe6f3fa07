"""All APIs, and their tables together. Without I/O: what reads requests may import it."""

from typing import Final

from extproc.core.request import Kind
from extproc.runners.llama_server.paths import (
    LLAMA_SERVER,
    QUERIED_PATHS,
    STREAM_LOOKUP_PATHS,
    STREAM_PATHS,
)
from extproc.runners.lm_studio.paths import LM_STUDIO
from extproc.runners.ollama.paths import OLLAMA
from extproc.runners.openai.paths import (
    CLASSIFY,
    HEALTH_PATHS,
    MODEL_PATHS,
    MODELS_PATHS,
    OPENAI,
    RERANK,
    SCORE,
    TOKENIZE,
)
from extproc.runners.sglang.paths import SGLANG
from extproc.runners.vllm.paths import POOLING, VLLM

__all__ = [
    "APIS",
    "CLOSED",
    "CLOSED_PATHS",
    "COUNTING_PATHS",
    "HEALTH_PATHS",
    "MODELS_PATHS",
    "MODEL_PATHS",
    "OPEN_PATHS",
    "QUERIED_PATHS",
    "SLOT_PATHS",
    "STREAM_LOOKUP_PATHS",
    "STREAM_PATHS",
    "UNKNOWN",
    "UNSTREAMED_PATHS",
]

APIS: Final = (
    *(OPENAI, RERANK, SCORE, CLASSIFY, TOKENIZE),
    *(LLAMA_SERVER, OLLAMA, VLLM, POOLING, SGLANG, LM_STUDIO),
)

SLOT_PATHS: Final = {path: kind for api in APIS for path, kind in api.slot_paths.items()}
"""A POST to one of these uses a slot while it runs; all other requests need no slot."""

COUNTING_PATHS: Final = frozenset(path for api in APIS for path in api.counting_paths)
"""A POST to one of these belongs to a model, which its body names, and takes no slot."""

UNSTREAMED_PATHS: Final = COUNTING_PATHS | {
    path for path, kind in SLOT_PATHS.items() if kind is Kind.EMBEDDING
}
"""The response to a POST to one of these is never streamed."""

OPEN_PATHS: Final = tuple(rule for api in APIS for rule in api.open_paths)
"""The paths of servers of any kind that are open unless the settings say otherwise."""

CLOSED_PATHS: Final = tuple(rule for api in APIS for rule in api.closed_paths)
"""Paths that are closed on purpose, unless the settings open them: clients get 403. At any other
path that is not open they get 404."""

CLOSED: Final = (
    "This path is closed here. Open are the paths of the servers that answer model requests, "
    "their models, health and properties, and the web page."
)
"""The message for a request to one of these."""

UNKNOWN: Final = (
    "Nothing is served at this path by this method. Served are the paths of the servers that "
    "answer model requests, their models, health and properties, and the web page."
)
"""The message for a request to any other path."""
