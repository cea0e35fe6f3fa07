"""Claims about extproc/keeper/models_file.py: the file of a machine's models, and its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.keeper.models_file import parse_models, read_models
from extproc.settings import SettingsError

GOOD = """
memory_mb: 24000
first_port: 6000
models:
  qwen:
    cmd: llama-server -m '/models/my qwen.gguf'  # the chat model
    slots: 4
    context_tokens: 8192
    memory_mb: 16000
    aliases: [gpt-4o, chat]
    ttl_s: 600
    env: {CUDA_VISIBLE_DEVICES: "0"}
    preload: true
    exclusive_with: [coder]
  coder:
    cmd: [llama-server, -m, coder.gguf, --port, "${PORT}"]
    memory_mb: 20000
    port: 6000
  small:
    cmd: llama-server -m small.gguf
    memory_mb: 100
"""


def test_a_file_with_every_key(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(GOOD)
    found = read_models(file)
    qwen = found.models["qwen"]
    assert qwen.cmd == ("llama-server", "-m", "/models/my qwen.gguf")
    assert (qwen.slots, qwen.context_tokens, qwen.ttl_s, qwen.preload) == (4, 8192, 600.0, True)
    assert qwen.env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert found.models["small"].slots == 1
    assert list(found.models) == ["qwen", "coder", "small"]


def test_each_model_has_a_port_of_its_own() -> None:
    """Those without one get the next that nobody has."""
    found = parse_models(GOOD.encode(), "models.yaml")
    assert found.ports() == {"qwen": 6001, "coder": 6000, "small": 6002}
    before = {"small": 6001, "gone": 6002}
    assert found.ports(before) == {"qwen": 6003, "coder": 6000, "small": 6001}, "over a reload"
    assert found.ports({"small": 6000})["small"] == 6002, "another one has it by its entry now"


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("memory_mb: 24000", "memory_mb: lots"), 2, "memory_mb"),
        (("ttl_s: 600", "ttl: 600"), 11, "ttl_s"),
        (("[coder]", "[other]"), 14, "no other model other"),
        (("memory_mb: 20000", "memory_mb: 30000"), 17, "larger than the machine's"),
        (("aliases: [gpt-4o, chat]", "aliases: [coder]"), 10, "name of the model"),
        (("cmd: llama-server -m small.gguf", "cmd: llama-server --port 80"), 20, "${PORT}"),
        (("cmd: llama-server -m small.gguf", 'cmd: llama-server "'), 20, "not a command"),
        (("cmd: llama-server -m small.gguf", 'cmd: ""'), 20, "cmd"),
        (("port: 6000\n  small", "port: 99999\n  small"), 18, "port"),
        (('{CUDA_VISIBLE_DEVICES: "0"}', '{"A=B": "0"}'), 12, "environment variable"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    change: tuple[str, str], line: int, words: str
) -> None:
    assert change[0] in GOOD
    with pytest.raises(SettingsError) as caught:
        parse_models(GOOD.replace(*change).encode(), "models.yaml")
    assert f"models.yaml:{line}" in str(caught.value) and words in str(caught.value)


def test_preloaded_models_must_fit_together() -> None:
    both = GOOD.replace("    port: 6000\n", "    port: 6000\n    preload: true\n")
    with pytest.raises(SettingsError, match="preloaded models take 36000 MiB"):
        parse_models(both.encode(), "models.yaml")


def test_two_models_may_not_share_a_port() -> None:
    double = GOOD.replace("memory_mb: 100\n", "memory_mb: 100\n    port: 6000\n")
    with pytest.raises(SettingsError, match="6000 is the port of coder"):
        parse_models(double.encode(), "models.yaml")


def test_a_file_without_models_is_no_keeper() -> None:
    with pytest.raises(SettingsError, match="models"):
        parse_models(b"memory_mb: 1\nmodels: {}\n", "models.yaml")
