"""How often a load of a model is tried, and how long its unload waits. The same for models with a
server of their own and for those of a router."""

from typing import Final

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
MAX_FAILURES: Final = 5
"""After this number in a row, only an operator loads it again."""
STABLE_S: Final = 60.0
"""A model that has been loaded for so long has recovered: earlier failures are forgotten."""
FOREIGN_S: Final = 10.0
"""How long an unload waits for requests that bypass the picker, after ours have ended."""


def retry_pause_s(failures: int) -> float:
    """The pause before the next load, after this number of failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (failures - 1))
