"""How long the scraper waits where a test is not about that: longer than any machine stands still.

By its own settings it gives a server one second to take a connection and three to answer.
"""

from __future__ import annotations

from scraper.client import Timeouts

PATIENCE_S = 60.0
PATIENT = Timeouts(
    connect_s=PATIENCE_S,
    read_s=PATIENCE_S,
    write_s=PATIENCE_S,
    pool_s=PATIENCE_S,
    slots_read_s=PATIENCE_S,
)
