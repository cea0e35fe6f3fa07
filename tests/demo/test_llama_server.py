from __future__ import annotations

from pathlib import Path

import pytest

from extproc.demo.llama_server import (
    LLAMA_SERVER_VARIABLE,
    LlamaServerError,
    cached_llama_server,
    find_llama_server,
)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LLAMA_SERVER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_variable_goes_before_path_and_path_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_llama_server() is None
    cached = executable(cached_llama_server())
    assert cached.is_relative_to(tmp_path / "cache" / "coxswain" / "llama-server")
    assert find_llama_server() == cached
    on_path = executable(tmp_path / "path" / "llama-server")
    assert find_llama_server() == on_path
    named = executable(tmp_path / "mine" / "server")
    monkeypatch.setenv(LLAMA_SERVER_VARIABLE, str(named))
    assert find_llama_server() == named


def test_a_variable_that_names_nothing_is_an_error_and_not_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "path" / "llama-server")
    monkeypatch.setenv(LLAMA_SERVER_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(LlamaServerError, match="not an executable file"):
        find_llama_server()


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cached_llama_server().is_relative_to(Path.home() / ".cache")
