"""Claims about extproc/keeper/command.py: what is added to a model's command."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.keeper.command import server_command, slot_context
from extproc.keeper.models_file import ModelEntry

ADDRESS = Address.of("10.0.0.5", 5801)


def command(cmd: str, **more: Any) -> list[str]:
    entry = ModelEntry.model_validate({"cmd": cmd, "memory_mb": 1, **more})
    return server_command(entry, ADDRESS)


def test_what_a_command_does_not_say_is_added() -> None:
    """The context of one slot becomes that of all."""
    assert command("llama-server -m a.gguf", slots=4, context_tokens=1000) == [
        *("llama-server", "-m", "a.gguf", "--port", "5801", "--host", "10.0.0.5"),
        *("--parallel", "4", "--ctx-size", "4000"),
    ]


@pytest.mark.parametrize(
    "cmd",
    [
        "llama-server --port ${PORT} --host ${HOST} --parallel 2 --ctx-size 9",
        "llama-server --port=${PORT} --host=0.0.0.0 -np 2 -c 9",
    ],
)
def test_what_a_command_says_stays(cmd: str) -> None:
    made = command(cmd, slots=4, context_tokens=1000)
    assert len(made) == len(cmd.split()), "nothing was added"
    assert "5801" in " ".join(made) and "4000" not in made


def test_macros_are_replaced_inside_words() -> None:
    made = command("sh -c 'exec llama-server --port ${PORT} --host ${HOST}'")
    assert made[2] == "exec llama-server --port 5801 --host 10.0.0.5"


@pytest.mark.parametrize(
    ("cmd", "slots", "context_tokens", "expected"),
    [
        ("llama-server", 4, 1000, 1000),
        ("llama-server", 4, 0, 0),
        ("llama-server -c 8192", 4, 0, 2048),
        ("llama-server --ctx-size=8192 -np 2", 4, 1000, 4096),
        ("llama-server -c 8192 --kv-unified", 4, 0, 8192),
        ("llama-server -c 0", 4, 0, 0),
        ("llama-server -c ${CTX}", 4, 0, 0),
    ],
)
def test_the_context_of_a_slot_is_known_before_a_load(
    cmd: str, slots: int, context_tokens: int, expected: int
) -> None:
    entry = ModelEntry(
        cmd=tuple(cmd.split()), slots=slots, context_tokens=context_tokens, memory_mb=1
    )
    assert slot_context(entry) == expected
