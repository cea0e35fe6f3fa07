"""What the long run has more of: `make nightly` sets LONG_RUN=1."""

from __future__ import annotations

import os

import pytest

IS_LONG_RUN = "LONG_RUN" in os.environ

in_each_mode = pytest.mark.parametrize(
    "mode", ["discovery", "gateway"] if IS_LONG_RUN else ["discovery"]
)
"""For tests that need a stack of their own for each mode of Envoy, and whose claims are not about
Envoy's messages. Those that are take both modes also in the short run, as `test_uploads` does."""

in_long_run = pytest.mark.skipif(not IS_LONG_RUN, reason="LONG_RUN=1 runs it")
