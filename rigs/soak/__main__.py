"""`python -m rigs.soak`: see `rigs.soak.run`."""

from __future__ import annotations

import sys

from rigs.soak.run import main

sys.exit(main())
