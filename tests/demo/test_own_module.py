"""Claims about extproc/demo/own_module.py, by real processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.demo.own_module import own_module

ROOT = Path(__file__).parents[2]
TRAPS = ("h2", "grpc", "yaml", "httpx", "pydantic", "typer")


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A folder in which each of these names is a module that ends whoever imports it."""
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    return tmp_path


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("extproc.cli", ("config", "show")), ("extproc.demo.simulator", ("--help",))],
)
def test_modules_of_the_current_folder_are_not_imported(
    trapped: Path, module: str, arguments: tuple[str, ...]
) -> None:
    """Not by the picker, nor by a simulated server; a checkout's own modules are found."""
    done = subprocess.run(  # our own
        [*own_module(module), *arguments],
        cwd=trapped,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_trap_catches_who_walks_into_it(trapped: Path) -> None:
    done = subprocess.run(  # our own
        [sys.executable, "-m", "extproc.cli", "config", "show"],
        cwd=trapped,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 99


def test_every_module_that_we_start_is_started_so() -> None:
    found = [
        str(file)
        for folder in ("extproc", "scraper")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r'executable,\s*"-m"', file.read_text(encoding="utf-8"))
    ]
    assert not found
