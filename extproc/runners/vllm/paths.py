"""The paths that only vLLM has."""

from typing import Final

from extproc.runners.api import Api, kinds, rules

POOLING: Final = Api(name="pooling", slot_paths=kinds(embedding=("/pooling",)))
"""Of each vLLM whose model does not generate."""

VLLM: Final = Api(
    name="vllm",
    slot_paths=kinds(embedding=("/score",)),
    closed_paths=rules(
        "/v1/load_lora_adapter",  # as all below, changes the server for all clients
        "/v1/unload_lora_adapter",
        "/sleep",
        "/wake_up",
        "/reset_prefix_cache",
        "/collective_rpc",
    ),
)
