"""Claims about extproc/keeper/llama_swap.py: what is translated, and what is named instead."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from extproc.keeper.llama_swap import import_llama_swap
from extproc.keeper.models_file import ModelsFile, parse_models
from extproc.settings import SettingsError

SWAP = """
healthCheckTimeout: 90
logLevel: debug
startPort: 10001
apiKeys: [sk-secret]
macros:
  bin: /opt/llama-server --port ${PORT}
  gpu: ${bin} -ngl 99
hooks:
  on_startup:
    preload: [chat]
models:
  qwen:
    cmd: |
      # the chat model
      ${gpu}
      -m /models/qwen.gguf -np 4
    aliases: [chat]
    ttl: 300
    env: ["CUDA_VISIBLE_DEVICES=0,1"]
    filters: {strip_params: temperature}
  coder:
    macros: {ctx: 4096}
    cmd: ${gpu} -m /models/coder.gguf -c ${ctx} --slot-name ${MODEL_ID}
    checkEndpoint: /v1/models
  whisper:
    cmd: docker run whisper --port 9503 ${env.HOME}
    cmdStop: docker stop whisper
    proxy: http://127.0.0.1:9503/api
groups:
  big: {swap: true, exclusive: true, members: [qwen, coder]}
  always: {swap: false, exclusive: false, persistent: true, members: [whisper]}
newThing: 1
"""
MIB = 1024 * 1024
SIZES = {"/models/qwen.gguf": 1000 * MIB, "/models/coder.gguf": 100 * MIB}


def imported(text: str) -> tuple[ModelsFile, str]:
    result = import_llama_swap(yaml.safe_load(text), "llama-swap.yaml", SIZES.get)
    content = yaml.safe_dump(result.content, sort_keys=False)
    return parse_models(content.encode(), "imported"), "\n".join(result.notes)


def test_models_are_translated() -> None:
    file, _ = imported(SWAP)
    qwen, coder, whisper = file.models.values()
    assert qwen.cmd == (
        *("/opt/llama-server", "--port", "${PORT}", "-ngl", "99"),
        *("-m", "/models/qwen.gguf", "-np", "4"),
    )
    assert (qwen.slots, qwen.aliases, qwen.ttl_s, qwen.preload) == (4, ("chat",), 300.0, True)
    assert qwen.env == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert (qwen.memory_mb, coder.memory_mb, file.memory_mb) == (1201, 121, 1322)
    assert coder.cmd[-4:] == ("-c", "4096", "--slot-name", "coder")
    assert not coder.preload and coder.load_timeout_s == 90.0
    assert "${PORT}" in whisper.cmd and whisper.port == 9503 and whisper.memory_mb == 0
    assert file.first_port == 10001


def test_groups_become_exclusions() -> None:
    """Members that swap exclude each other; a persistent group is not excluded."""
    file, _ = imported(SWAP)
    assert {name: model.exclusive_with for name, model in file.models.items()} == {
        "qwen": ("coder",),
        "coder": ("qwen",),
        "whisper": (),
    }
    alone, _ = imported("models: {a: {cmd: x}, b: {cmd: x}}")
    assert alone.models["a"].exclusive_with == ("b",), "without groups one model at a time"


@pytest.mark.parametrize(
    "words",
    [
        "apiKeys: let the picker check",
        "models.qwen.filters: requests are passed on unchanged",
        "models.coder.checkEndpoint: /v1/models",
        "models.coder: the command has no --parallel",
        "models.whisper.cmdStop: the keeper sends SIGTERM",
        "models.whisper.proxy: the path /api is left out",
        "models.whisper.memory_mb: unknown",
        "models.whisper: ${env.HOME} is not a macro here",
        "newThing: unknown here",
        "memory_mb: llama-swap does not know memory",
    ],
)
def test_what_has_no_counterpart_is_named(words: str) -> None:
    _, notes = imported(SWAP)
    assert words in notes
    assert "sk-secret" not in notes and "logLevel" not in notes


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{}", "models"),
        ("models: {a: {}}", r"models\.a\.cmd"),
        ("models: {a: 1}", r"models\.a"),
        ("models: {a: {cmd: 'x \"'}}", "not a command"),
    ],
)
def test_what_llama_swap_would_not_read_is_an_error(text: str, key: str) -> None:
    values: Any = yaml.safe_load(text)
    with pytest.raises(SettingsError, match=key):
        import_llama_swap(values, "llama-swap.yaml", SIZES.get)
