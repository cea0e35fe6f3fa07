"""A reading: all metrics at one moment, the input of every exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extproc.telemetry.counters import Distribution
from extproc.telemetry.definitions import Family

Value = float | Distribution
"""A histogram's value is a `Distribution`, any other's a number."""


@dataclass(frozen=True, slots=True)
class FamilyReading:
    """One metric's values by its label values, which stand in the order of `family.labels`."""

    family: Family
    values: Mapping[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`taken_at_ns` and `since_ns` (from when on counters count) are Unix nanoseconds."""

    taken_at_ns: int
    since_ns: int
    families: tuple[FamilyReading, ...]
