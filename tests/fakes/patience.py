"""How long to wait where a test is not about that: longer than any machine stands still.

By their own settings the scraper gives a server one second to take a connection and three to
answer, and Envoy goes on after a second without the picker.
"""

from __future__ import annotations

from extproc.runners.timeouts import Timeouts
from scraper.options import ScraperOptions

PATIENCE_S = 60.0
PATIENT = Timeouts(
    connect_s=PATIENCE_S,
    read_s=PATIENCE_S,
    write_s=PATIENCE_S,
    pool_s=PATIENCE_S,
    slots_read_s=PATIENCE_S,
)
PATIENT_SCRAPES = ScraperOptions(slow_after_s=PATIENCE_S, timeouts=PATIENT)
