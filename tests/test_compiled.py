"""`make test-compiled` runs what is compiled, and not the sources beside it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.compile_hook import compiled_modules

ROOT = Path(__file__).parent.parent
MODULES = [
    path.removesuffix(".py").replace("/", ".")
    for path in compiled_modules(ROOT)
    if not path.endswith("__init__.py")
]


def test_what_each_request_runs_through_is_chosen_and_its_coroutines_are_not() -> None:
    assert {
        "extproc.core.scheduler.dispatcher",
        "extproc.core.slots.ledger",
        "extproc.processes.fronts.core_calls",
        "extproc.stream.exchange",
    } <= {*MODULES}
    assert "extproc.transport.http2_server" not in MODULES


@pytest.mark.skipif("EXPECT_COMPILED" not in os.environ, reason="`make test-compiled` runs it")
def test_the_compiled_modules_are_those_that_are_imported() -> None:
    files = {name: importlib.import_module(name).__file__ or "" for name in MODULES}
    assert [name for name, file in files.items() if not file.endswith(".so")] == []


@pytest.mark.skipif("EXPECT_COMPILED" not in os.environ, reason="`make test-compiled` runs it")
def test_each_module_may_be_imported_first() -> None:
    """A compiled named tuple needs the classes of its fields; one that only type checkers import
    crashes the process where nobody else has imported it."""
    command = [sys.executable, "-m", "tests.fakes.import_first", *MODULES]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.splitlines() == []
