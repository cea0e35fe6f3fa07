"""The names of the kinds of servers, as settings have them."""

from enum import Enum


class RunnerKind(Enum):
    AUTO = "auto"  # it is found out
    LLAMA_SERVER = "llama-server"
    OLLAMA = "ollama"
    VLLM = "vllm"
    SGLANG = "sglang"
    LM_STUDIO = "lm-studio"
    OPENAI = "openai"  # anything else that has OpenAI's API
