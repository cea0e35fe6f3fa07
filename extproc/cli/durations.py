"""Durations as people type them: `90`, `90s`, `2m`, `1h30m`, `500ms`."""

import re
from typing import Final

import typer

METAVAR: Final = "DURATION"
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HINT: Final = "is no duration; write 90s, 2m or 1h30m"
MIN_INTERVAL_S: Final = 0.2
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def duration(text: str | float) -> float:
    """The duration in seconds; a number without a unit is seconds. Raises `BadParameter`."""
    plain = str(text).strip().lower()
    try:
        seconds = float(plain)
    except ValueError:
        parts = _PART.findall(plain)
        if not parts or "".join(map("".join, parts)) != plain:
            raise typer.BadParameter(f"{text!r} {_HINT}") from None
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not 0.0 <= seconds < float("inf"):
        raise typer.BadParameter(f"{text!r} {_HINT}")
    return seconds


def positive_duration(text: str | float) -> float:
    """The same, above 0."""
    seconds = duration(text)
    if not seconds:
        raise typer.BadParameter("it must be above 0")
    return seconds


def update_interval(text: str | float) -> float:
    """The same, at least `MIN_INTERVAL_S`: faster updates cost more than they show."""
    seconds = duration(text)
    if seconds < MIN_INTERVAL_S:
        raise typer.BadParameter(f"it must be at least {MIN_INTERVAL_S:g}s")
    return seconds
