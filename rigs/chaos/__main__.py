"""`python -m rigs.chaos`: see `rigs.chaos.run`."""

import sys

from rigs.chaos.run import main

sys.exit(main())
