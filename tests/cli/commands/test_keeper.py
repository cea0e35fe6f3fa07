"""Claims about extproc/cli/commands/keeper.py: what needs no picker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from extproc.keeper.models_file import parse_models
from tests.cli.typed_command import Command


def test_an_imported_file_is_a_keepers_file(coxswain: Command, tmp_path: Path) -> None:
    """What has no counterpart is on stderr and in the file."""
    swap, model = tmp_path / "llama-swap.yaml", tmp_path / "a.gguf"
    model.write_bytes(b"x" * 3_000_000)
    swap.write_text(f"models: {{a: {{cmd: 'llama-server -m {model}', cmdStop: x}}}}\n")
    ended = coxswain("keeper", "import", str(swap))
    assert ended.code == 0 and "cmdStop" in ended.err and "# - models.a.cmdStop" in ended.out
    found = parse_models(ended.out.encode(), "models.yaml")
    assert found.models["a"].memory_mb == 4
    as_json = json.loads(coxswain("keeper", "import", str(swap), "-o", "json").out)
    assert as_json == yaml.safe_load(ended.out)


@pytest.mark.parametrize("command", ["import", "check"])
def test_a_bad_file_is_said(coxswain: Command, tmp_path: Path, command: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("models: 5\n")
    words = (str(file),) if command == "import" else ("--models", str(file))
    ended = coxswain("keeper", command, *words)
    assert ended.code == 2 and "models" in ended.err


def test_a_check_shows_the_commands_and_what_is_not_here(coxswain: Command, tmp_path: Path) -> None:
    file, program = tmp_path / "models.yaml", tmp_path / "llama-server"
    program.touch(mode=0o755)
    (tmp_path / "a.gguf").touch()
    text = f"memory_mb: 9\nmodels: {{a: {{cmd: {program} -m {tmp_path}/a.gguf, memory_mb: 5}}}}\n"
    file.write_text(text)
    ended = coxswain("keeper", "check", "--models", str(file))
    assert ended.code == 0 and ended.err == ""
    assert "/a.gguf --port 5800 --host 127.0.0.1 --parallel 1" in ended.out
    as_json = json.loads(coxswain("keeper", "check", "--models", str(file), "-o", "json").out)
    assert as_json["a"][0] == str(program)
    file.write_text(text.replace("a.gguf", "b.gguf").replace("memory_mb: 5", "memory_mb: 0"))
    ended = coxswain("keeper", "check", "--models", str(file))
    assert ended.code == 2 and "there is no file" in ended.err and "memory_mb: 0" in ended.err
    assert "/b.gguf --port 5800" in ended.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--models", "/no/such/file"), "cannot be read"),
        (("--log-format", "xml"), "human or json"),
    ],
)
def test_a_keeper_that_cannot_begin_says_why(
    coxswain: Command, flags: tuple[str, ...], words: str
) -> None:
    ended = coxswain("keeper", *flags)
    assert ended.code == 2 and words in ended.err


def test_a_wrong_address_is_said(coxswain: Command, tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("memory_mb: 9\nmodels: {a: {cmd: x, memory_mb: 5}}\n")
    ended = coxswain("keeper", "--models", str(file), "--advertise", "gpu-1")
    assert ended.code == 2 and "--advertise" in ended.err and "auto or aws" in ended.err
