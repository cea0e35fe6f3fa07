"""One picker is complete without the wing for several processes: a copy of the tree in which
`extproc/processes` was deleted passes the unit tests of all that is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_run import IS_LONG_RUN

ROOT = Path(__file__).parents[1]
WING = re.compile(r"extproc[./]processes|tests\.processes")
FAKES = re.compile(r"from tests\.fakes\.(\w+) import|from tests\.fakes import (\w+)")
ABOVE = (
    "tests/bench",
    "tests/cli",
    "tests/demo",
    "tests/docs",
    "tests/rigs",
    "tests/test_ground_plan.py",
)
"""Tests of what may use every part, and of the tree itself."""
SHORT = ("tests/app/test_service.py", "tests/app/discovery", "tests/stream/test_servicer.py")
"""A picker as a whole; the long form runs the unit tests of everything."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree without the wing, its tests, and the tests that use it."""
    folder = tmp_path_factory.mktemp("picker")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    files = [Path(name) for name in tracked.stdout.decode().splitlines()]
    kept = [file for file in files if not _belongs_to_wing(file)]
    assert len(files) - len(kept) > 60, "the wing has moved"
    for file in kept:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    return folder


def _belongs_to_wing(file: Path) -> bool:
    if not (ROOT / file).is_file() or file.is_relative_to("extproc/processes"):
        return True
    if file.parts[0] != "tests" or file.suffix != ".py":
        return False
    return _uses_wing(ROOT / file)


def _uses_wing(file: Path) -> bool:
    """Whether a test or a fake uses the wing, itself or through fakes."""
    text = file.read_text(encoding="utf-8")
    if WING.search(text):
        return True
    names = {name for found in FAKES.findall(text) for name in found if name}
    fakes = [ROOT / f"tests/fakes/{name}.py" for name in names]
    return any(fake.is_file() and fake != file and _uses_wing(fake) for fake in fakes)


@pytest.mark.timeout(1800 if IS_LONG_RUN else 300)
@pytest.mark.e2e
def test_all_below_the_wing_works_without_it(copy: Path) -> None:
    what = ("tests",) if IS_LONG_RUN else SHORT
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    run = subprocess.run(
        [*command, "-m", "not e2e and not llama", *map("--ignore={}".format, ABOVE), *what],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert re.search(r"\d{3,} passed", run.stdout), run.stdout[-400:]
