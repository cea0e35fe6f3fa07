"""Claims about extproc/keeper/machine_check.py and launchers.py: what cannot work is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from extproc.core.address import Address
from extproc.keeper.command import server_command, takes_slots_folder
from extproc.keeper.launchers import launcher_of
from extproc.keeper.machine_check import misfits
from extproc.keeper.models_file import ModelEntry, parse_models

PLACE = Address.of("10.0.0.9", 5800)


def found(tmp_path: Path, models: str, head: str = "memory_mb: 9") -> list[str]:
    model = tmp_path / "a.gguf"
    model.touch()
    program = tmp_path / "llama-server"
    program.touch(mode=0o755)
    text = f"{head}\nmodels: {{{models}}}".replace("HERE", str(tmp_path))
    return misfits(parse_models(text.encode(), "models.yaml"), {"PATH": str(tmp_path), "KEY": "k"})


def test_a_file_that_fits_its_machine(tmp_path: Path) -> None:
    model = "a: {cmd: llama-server -m HERE/a.gguf --lora=HERE/a.gguf, memory_mb: 5}"
    assert found(tmp_path, model) == []
    keyed = "a: {cmd: HERE/llama-server -hf org/a, memory_mb: 5, api_key_env: KEY}"
    assert found(tmp_path, keyed, "memory_mb: 9\nsave_slots: HERE/slots") == []
    assert not (tmp_path / "slots").exists(), "a check changes nothing"


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("a: {cmd: llama-server, memory_mb: 0}", "models.a.memory_mb: 0"),
        ("a: {cmd: lama-server, memory_mb: 5}", "models.a.cmd: there is no program lama-server"),
        ("a: {cmd: HERE/a.gguf, memory_mb: 5}", "no program"),
        ("a: {cmd: llama-server -m HERE/b.gguf, memory_mb: 5}", "models.a.cmd: there is no file"),
        ("a: {cmd: llama-server --model=HERE, memory_mb: 5}", "there is no file"),
        ("a: {cmd: llama-server --mmproj HERE/p, memory_mb: 5}", "there is no file"),
        ("a: {cmd: llama-server, memory_mb: 5, env: {LLAMA_ARG_MODEL: /no}}", "no file /no"),
        ("a: {cmd: llama-server, memory_mb: 5, env: {PATH: /no}}", "no program"),
        ("a: {cmd: llama-server, memory_mb: 5, api_key_env: NONE}", "NONE is empty or not set"),
        ("a: {cmd: vllm serve m, memory_mb: 5}", "vllm: it is no llama-server"),
        ("a: {cmd: docker run x -m /m, memory_mb: 5}", "docker: nothing is added to it"),
        ("a: {cmd: 'docker run -d -p ${PORT}:8080 x', memory_mb: 5}", "in the background"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, models: str, words: str) -> None:
    assert any(words in text for text in found(tmp_path, models))


def test_memory_and_the_folder_of_slots(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir(mode=0o700)
    (tmp_path / "models" / "a.bin").touch()
    head = "memory_mb: 0\nsave_slots: HERE/models"
    texts = "\n".join(found(tmp_path, "a: {cmd: llama-server, memory_mb: 0}", head))
    assert "memory_mb: 0: no model fits" in texts and "has other files" in texts


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("docker run --rm -p ${PORT}:8080 ghcr.io/ggml-org/llama.cpp:server", "docker"),
        ("/usr/bin/podman run x", "podman"),
        ("sudo -E docker run x", "docker"),
        ("env A=1 numactl -N 0 docker run x", "docker"),
        ("vllm serve org/m", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server", "vllm"),
        ('bash -c "exec llama-server -m x"', "bash"),
        ("sh -ec llama-server", "sh"),
        ("llama-server -m docker", None),
        ("/opt/llama-server-b1234 -m x", None),
        ("numactl -N 0 llama-server -m vllm", None),
        ("bash start.sh", None),
        ("python3 -m server", None),
        ("/srv/start-qwen", None),
    ],
)
def test_nothing_is_added_behind_a_launcher(command: str, program: str | None) -> None:
    text = f"memory_mb: 9\nmodels:\n  a:\n    memory_mb: 5\n    cmd: >\n      {command}\n"
    entry = parse_models(text.encode(), "models.yaml").models["a"]
    launcher = launcher_of(entry.cmd)
    assert (launcher and launcher.program) == program
    started = server_command(entry, PLACE, "/slots")
    assert takes_slots_folder(entry) == (launcher is None)
    if launcher is None:
        assert started[-2:] == ["--slot-save-path", "/slots"] and "--parallel" in started
    else:
        assert started == [word.replace("${PORT}", "5800") for word in entry.cmd]


def test_a_script_gets_the_flags(tmp_path: Path) -> None:
    entry = ModelEntry(cmd=(sys.executable, "-m", "tests.keeper.tiny_server"), memory_mb=5)
    assert "--parallel" in server_command(entry, PLACE)
