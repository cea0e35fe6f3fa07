"""Claims about the Makefile, as its recipes tell them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OUR_MAKES = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "ENDPOINTS", "UP"}

AS_IF_INSTALLED = ("-o", ".venv/made")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on the PATH")


def up(*arguments: str) -> list[str]:
    """The words that `make up` hands to the program that takes the place of its shell, also when
    `make` runs this test."""
    printed = subprocess.run(
        ["make", "--no-print-directory", *AS_IF_INSTALLED, "up", "RUN=printf '%s\\n'", *arguments],
        env={name: value for name, value in os.environ.items() if name not in OUR_MAKES},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    exec_, *words = printed.stdout.splitlines()
    assert exec_ == "exec"
    return words


@pytest.mark.parametrize(
    "servers",
    ["a:1", "a:1,b:2", "a:1, b:2", "[::1]:8080", "https://a:1/", ",", "*;#", "it's:1", '"`id`"'],
)
def test_make_up_hands_on_what_was_said_as_it_was_said(servers: str) -> None:
    """Also what is no address: `coxswain up` says what is wrong with it, and no shell reads it."""
    assert up(f"ENDPOINTS={servers}") == ["coxswain", "up", "--endpoint", servers]


def test_make_up_without_servers_starts_a_fleet() -> None:
    assert up() == up("ENDPOINTS=") == up("ENDPOINTS= ") == ["coxswain", "up"]
    assert up("UP=--simulator --slots 2,4") == ["coxswain", "up", "--simulator", "--slots", "2,4"]


def test_too_old_a_python_gets_instructions() -> None:
    """The recipe stops before it creates anything."""
    printed = subprocess.run(
        ["make", "--no-print-directory", "-W", "requirements.lock", "venv", "PYTHON=false"],
        env={name: value for name, value in os.environ.items() if name not in OUR_MAKES},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed.returncode != 0
    assert "Python 3.11 or newer is needed; name one: make PYTHON=" in printed.stdout
