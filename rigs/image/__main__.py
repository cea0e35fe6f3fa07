"""`python -m rigs.image`: see `rigs.image.run`."""

from __future__ import annotations

import sys

from rigs.image.run import main

sys.exit(main())
