"""Whether the package index can be reached by the tools that some tests let install packages."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

LIMIT_S = 120.0


def need_index(uv: str) -> None:
    """Skip the test where this uv reaches no index: the network, or a mirror's settings for uv."""
    problem = _problem(str(Path(uv).resolve()))
    if problem:
        pytest.skip(f"uv reaches no package index: {problem}")


@lru_cache
def _problem(uv: str) -> str:
    asked = subprocess.run(
        [uv, "pip", "compile", "--quiet", "--no-header", "-"],
        input="packaging\n",
        env={**os.environ, "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"},
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stderr.strip().partition("\n")[0] if asked.returncode else ""
