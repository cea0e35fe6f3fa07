"""`python -m rigs.chaos`: see `rigs.chaos.run`."""

from __future__ import annotations

import sys

from rigs.chaos.run import main

sys.exit(main())
