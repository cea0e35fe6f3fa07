"""Claims about extproc/cli/loading.py, and what short commands need not load."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from extproc.cli.loading import collector_at_rest


def test_the_collector_works_again_afterwards() -> None:
    """Also when a module cannot be loaded. It does not look through what was loaded."""
    with collector_at_rest():
        assert not gc.isenabled()
        loaded = gc.get_freeze_count()
        kept: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled() and gc.get_freeze_count() > loaded + len(kept)
    with pytest.raises(ImportError), collector_at_rest():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize("module", ["version", "options", "agent", "keeper"])
def test_a_part_of_the_application_loads_no_picker(module: str) -> None:
    program = f"import sys, extproc.app.{module}; assert 'extproc.app.service' not in sys.modules"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
