"""A reading: all metrics at one moment, the input of every exporter."""

from collections.abc import Mapping
from dataclasses import dataclass

from extproc.telemetry.counters import Distribution
from extproc.telemetry.definitions import Family

Value = float | Distribution
"""A histogram's value is a `Distribution`, any other's a number."""

Values = Mapping[tuple[str, ...], Value]
"""The values of one metric by its label values, in the order of `Family.labels`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`taken_at_ns` and `since_ns` (from when on counters count) are Unix nanoseconds."""

    taken_at_ns: int
    since_ns: int
    families: Mapping[Family, Values]
