"""Claims about requirements.lock: it pins what pyproject.toml asks for, and names no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; [^\\]+)? \\$", re.MULTILINE)


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(text for extra in project["project"]["optional-dependencies"].values() for text in extra),
    ]
    requirements = [Requirement(text) for text in texts]
    return [requirement for requirement in requirements if requirement.name != "coxswain"]


def test_the_lock_pins_all_that_is_wanted() -> None:
    """Every requirement, the build backend's too, has a pin that satisfies it."""
    pins: dict[str, set[str]] = {}
    for pin in PIN.finditer(LOCK):
        pins.setdefault(pin["name"], set()).add(pin["version"])
    for requirement in wanted():
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not locked; run `make lock`"
        assert all(version in requirement.specifier for version in versions), requirement


def test_every_pin_has_a_hash() -> None:
    """Nothing is installed that is not held against a hash."""
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PIN.findall(LOCK))
    assert all("--hash=sha256:" in entry for entry in entries)


def test_no_index_is_named() -> None:
    """Where packages come from is the machine's own business."""
    assert "://" not in LOCK
    assert "index-url" not in LOCK
