"""How often work that grows with the fleet is repeated."""

from typing import Final

MAX_SHARE: Final = 0.05
"""Of a core, for one such work."""


def pause_s(interval_s: float, took_s: float) -> float:
    """Seconds until it is repeated: `interval_s`, or longer if it took so much processor time that
    its share of a core would exceed `MAX_SHARE`."""
    return max(interval_s, took_s / MAX_SHARE)
