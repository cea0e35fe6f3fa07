"""Claims about extproc/runners/llama_server/arguments.py: with which command lines a llama-server
shares its context among its slots."""

from __future__ import annotations

import pytest

from extproc.runners.llama_server.arguments import MAX_TOKENS, context_arguments

SERVER = "llama-server -m model.gguf"


@pytest.mark.parametrize(
    ("command", "shared_tokens"),
    [
        ("", 512),
        ("-c 8192", 8192),
        ("--ctx-size=8192", 8192),
        ("-c 300", 512),  # the server takes a little more
        ("-c 0", 512),
        ("--no-kv-unified", 512),  # without -np it is ignored
        ("-np -1 -no-kvu", 512),
        ("-np 4 -c 8192", 0),
        ("--parallel 4", 0),
        ("--parallel=4", 0),
        ("-np 1", 0),
        ("-np 4 -c 8192 -kvu", 8192),
        ("-np 4 --kv-unified", 512),
        ("-np 4 -kvu -no-kvu", 0),
        ("-np 4 -no-kvu -kvu", 512),
        ("-np 2 -np -1", 512),
        ("--kv-unified-per-slot 512", 0),
        ("--kv-unified-per-slot 512 -c 1024", 1024),
        ("-np", 512),
        ("-np x -c y", 512),
        ("-c 99999999999", MAX_TOKENS),
        ("-c " + "9" * 5000, 512),
        ("-c ²", 512),
    ],
)
def test_what_a_command_line_says(command: str, shared_tokens: int) -> None:
    """With slots that report 512 tokens each."""
    found = context_arguments(f"{SERVER} {command}".split())
    assert found.shared_tokens(512) == shared_tokens


@pytest.mark.parametrize(
    ("variables", "command", "shared_tokens"),
    [
        ({"LLAMA_ARG_N_PARALLEL": "4"}, "", 0),
        ({"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "1"}, "", 512),
        ({"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "true"}, "-no-kvu", 0),
        ({"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "off"}, "", 0),
        ({"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "maybe"}, "", 0),
        ({"LLAMA_ARG_N_PARALLEL": "4"}, "-np -1", 512),
        ({"LLAMA_ARG_CTX_SIZE": "4096"}, "", 4096),
        ({"LLAMA_ARG_CTX_SIZE": "4096"}, "-c 2048", 2048),
        ({"LLAMA_ARG_KV_UNIFIED_PER_SLOT": "512"}, "", 0),
    ],
)
def test_variables_count_where_no_argument_does(
    variables: dict[str, str], command: str, shared_tokens: int
) -> None:
    found = context_arguments(f"{SERVER} {command}".split(), variables)
    assert found.shared_tokens(512) == shared_tokens


def test_a_size_that_nothing_says() -> None:
    """Without -c, and before the slots are known, only that it is shared is known."""
    assert context_arguments([SERVER]).shared_tokens(None) is None
    assert context_arguments([]).is_shared
