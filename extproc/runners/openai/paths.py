"""The paths that all kinds of servers have, and those that several have."""

from typing import Final

from extproc.runners.api import Api, kinds, rules

MODELS_PATH: Final = "/v1/models"
MODELS_PATHS: Final = frozenset({MODELS_PATH, "/models"})
"""A GET of one of these lists the models."""

MODEL_PATHS: Final = "(/v1)?/models/(.+)"
"""A GET of one of these, a regular expression, shows the model whose name comes last. The picker
answers it."""

HEALTH_PATHS: Final = frozenset({"/health", "/v1/health"})
"""A GET of one of these shows a server's health."""

OPENAI: Final = Api(
    slot_paths=kinds(
        generating=(
            "/v1/completions",
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/messages",
            "/v1/audio/transcriptions",
        ),
        embedding=("/v1/embeddings",),
    ),
    other_paths=rules("GET /health", "GET /v1/health", "GET /v1/models", "GET /models"),
)

RERANK: Final = Api(name="rerank", slot_paths=kinds(embedding=("/rerank", "/v1/rerank")))
"""Of Jina's API, which llama-server and vLLM have."""

SCORE: Final = Api(name="score", slot_paths=kinds(embedding=("/v1/score",)))
"""Of vLLM and SGLang, and so is the next one."""

CLASSIFY: Final = Api(name="classify", slot_paths=kinds(embedding=("/classify",)))

TOKENIZE: Final = Api(
    name="tokenize",
    counting_paths=frozenset({"/tokenize", "/detokenize", "/v1/messages/count_tokens"}),
)
"""Of llama-server and vLLM; their bodies differ, so the model decides."""
