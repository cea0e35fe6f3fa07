"""Claims about extproc/demo/kept_models.py: the file that `coxswain up --models` gives a keeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.demo.kept_models import MACHINE, write_kept_models
from extproc.demo.llama_server import LLAMA_SERVER_VARIABLE, LlamaServerError
from extproc.keeper.models_file import read_models


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a llama-server."""
    binary = tmp_path / "server"
    binary.touch(mode=0o755)
    monkeypatch.setenv(LLAMA_SERVER_VARIABLE, str(binary))
    return binary


def test_there_is_memory_for_one_of_the_models(machine: Path, tmp_path: Path) -> None:
    kept = write_kept_models([2, 4, 2], tmp_path)
    file = read_models(kept.file)
    assert tuple(file.models) == kept.names == ("tiny-1", "tiny-2", "tiny-3")
    sizes = [model.memory_mb for model in file.models.values()]
    assert max(sizes) <= file.memory_mb < 2 * min(sizes)
    assert [model.slots for model in file.models.values()] == [2, 4, 2]
    assert len({model.port for model in file.models.values()}) == 3
    contents = {(tmp_path / f"{name}.gguf").read_bytes() for name in kept.names}
    assert len(contents) == 3, "the models differ"
    assert str(machine) in kept.sentence
    command = kept.keeper_command("127.0.0.1:9003")
    assert command[command.index("--picker") + 1] == "127.0.0.1:9003"
    assert command[command.index("--models") + 1] == str(kept.file)
    assert command[command.index("--name") + 1] == MACHINE


def test_without_a_llama_server_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LLAMA_SERVER_VARIABLE)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LlamaServerError, match="make llama"):
        write_kept_models([1], tmp_path)
