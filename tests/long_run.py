"""Whether this is the long run: `make nightly` sets LONG_RUN=1."""

from __future__ import annotations

import os

IS_LONG_RUN = "LONG_RUN" in os.environ
