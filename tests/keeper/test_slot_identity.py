"""Claims about extproc/keeper/slot_identity.py: another server has another digest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from extproc.keeper.slot_identity import identity_of

PROPS: dict[str, Any] = {
    "build_info": "b1",
    "total_slots": 2,
    "default_generation_settings": {"n_ctx": 4096},
}
META: dict[str, Any] = {"data": [{"meta": {"n_params": 10, "size": 20, "n_vocab": 30}}]}


def server(folder: Path, content: bytes = b"weights") -> dict[str, Any]:
    model = folder / "model.gguf"
    if not model.exists():
        model.write_bytes(content)
    command = ["llama-server", "-m", str(model), "-ctk", "f16"]
    return {
        "command": command,
        "environment": {"A": "1"},
        "props": {**PROPS, "model_path": str(model)},
        "models": META,
    }


def test_the_same_server_has_the_same_digest(tmp_path: Path) -> None:
    assert identity_of(**server(tmp_path)) == identity_of(**server(tmp_path)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["-ctk", "q8_0"]},
        {"environment": {"A": "2"}},
        {"props": {"build_info": "b2"}},
        {"props": {"total_slots": 4}},
        {"props": {"default_generation_settings": {"n_ctx": 2048}}},
        {"models": {"data": [{"meta": {"n_params": 11, "size": 20, "n_vocab": 30}}]}},
    ],
)
def test_another_command_build_context_or_size_is_another_server(
    change: dict[str, Any], tmp_path: Path
) -> None:
    before = server(tmp_path)
    after = dict(before)
    for key, value in change.items():
        after[key] = {**before[key], **value} if isinstance(value, dict) else before[key] + value
    assert identity_of(**before) != identity_of(**after) is not None


def test_another_file_of_the_same_size_and_time_is_another_server(tmp_path: Path) -> None:
    """The weights of a fine-tuned model have the shape of those that it began with."""
    before = server(tmp_path, b"a" * 100_000)
    model = tmp_path / "model.gguf"
    times = model.stat()
    first = identity_of(**before)
    model.write_bytes(b"b" * 100_000)
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identity_of(**before) != first


@pytest.mark.parametrize("word", ["{}", "--lora={}", "{}:0.5", "other,{}"])
def test_a_file_that_an_argument_names_counts(word: str, tmp_path: Path) -> None:
    subject = server(tmp_path)
    adapter = tmp_path / "adapter.gguf"
    adapter.write_bytes(b"one")
    subject["command"].append(word.format(adapter))
    first = identity_of(**subject)
    adapter.write_bytes(b"two")
    assert identity_of(**subject) != first


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"part")
    subject = server(tmp_path)
    subject["props"]["model_path"] = str(tmp_path / "m-00001-of-00002.gguf")
    first = identity_of(**subject)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"trap")
    assert identity_of(**subject) != first


@pytest.mark.parametrize("path", [None, "", "/nowhere/model.gguf"])
def test_without_its_file_nothing_proves_which_model_it_is(
    path: str | None, tmp_path: Path
) -> None:
    subject = server(tmp_path)
    subject["props"]["model_path"] = path
    assert identity_of(**subject) is None
