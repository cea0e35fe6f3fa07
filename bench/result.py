"""What a benchmark found: one row of the table, with the target where there is one."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

VERDICTS = {None: "", True: "met", False: "MISSED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured number. `target` says what it is held against, `is_met` whether it holds."""

    what: str
    value: str
    target: str = ""
    is_met: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The rows of one benchmark, and how they were measured."""

    title: str
    method: str
    rows: tuple[Row, ...]


Say = Callable[[str], None]
"""Shows what a benchmark does now."""
Measure = Callable[[Say], Coroutine[Any, Any, Section]]


def table(rows: Iterable[Row]) -> list[str]:
    """The lines of a table in Markdown."""
    return [
        "| what | measured | target | |",
        "|---|---:|---|---|",
        *(f"| {row.what} | {row.value} | {row.target} | {VERDICTS[row.is_met]} |" for row in rows),
    ]


def measured(what: str, number: float, unit: str = "", digits: int = 2) -> Row:
    """A number without a target."""
    return Row(what=what, value=f"{number:.{digits}f}{unit}")


def at_least(what: str, number: float, bound: float, digits: int = 2) -> Row:
    """A number that should not be smaller than `bound`."""
    value = f"{number:.{digits}f}"
    return Row(what=what, value=value, target=f">= {bound:g}", is_met=number >= bound)


def at_most(what: str, number: float, bound: float, unit: str = "") -> Row:
    """A number that should not be larger than `bound`."""
    return Row(
        what=what,
        value=f"{number:.2f}{unit}",
        target=f"<= {bound:g}{unit}",
        is_met=number <= bound,
    )


def none_of(what: str, count: int) -> Row:
    """A number of things that must not happen."""
    return Row(what=what, value=str(count), target="0", is_met=count == 0)
