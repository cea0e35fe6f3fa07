"""Claims about the locks: they pin what pyproject.toml asks for, all alike, and name no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Final = PROJECT["project"]["optional-dependencies"]
WANTED: Final = {
    "requirements.lock": [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(text for extra in EXTRAS.values() for text in extra if not text.startswith("coxswain")),
    ],
    "requirements-runtime.lock": PROJECT["project"]["dependencies"],
    "requirements-build.lock": PROJECT["dependency-groups"]["wheel"],
}
LOCKS: Final = {name: (ROOT / name).read_text(encoding="utf-8") for name in WANTED}
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; [^\\]+)? \\$", re.MULTILINE)


def pins_of(lock: str) -> dict[str, set[str]]:
    """The versions of each package; it may have several, for different platforms."""
    pins: dict[str, set[str]] = {}
    for pin in PIN.finditer(LOCKS[lock]):
        pins.setdefault(pin["name"], set()).add(pin["version"])
    return pins


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_all_that_is_wanted(lock: str) -> None:
    """Every requirement, the build backend's too, has a pin that satisfies it."""
    pins = pins_of(lock)
    for requirement in map(Requirement, WANTED[lock]):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not locked; run `make lock`"
        assert all(version in requirement.specifier for version in versions), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_what_runs_is_what_was_tested(lock: str) -> None:
    """Each pin of each lock is one of the developers' lock."""
    assert PIN.findall(LOCKS[lock])
    developers = pins_of("requirements.lock")
    assert all(versions <= developers[name] for name, versions in pins_of(lock).items())


def test_the_wheel_hooks_dependencies_are_in_its_group() -> None:
    """pip installs those of the hook where a user compiles; the lock has those of the group."""
    names = {Requirement(text).name for text in PROJECT["dependency-groups"]["wheel"]}
    hook = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    wanted = [*PROJECT["build-system"]["requires"], *hook["dependencies"]]
    assert names == {Requirement(text).name for text in wanted}


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    """Nothing is installed that is not held against a hash."""
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PIN.findall(lock))
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_no_index_is_named(lock: str) -> None:
    """Where packages come from is the machine's own business."""
    assert "://" not in lock
    assert "index-url" not in lock
