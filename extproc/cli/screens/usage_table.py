"""Usage as a table and as CSV."""

import csv
import io
from collections.abc import Collection
from typing import Final

from rich.table import Table

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

KEYS: Final = ("client", "objective", "model", "tier")
COUNTS: Final = {
    "requests": "REQUESTS",
    "rejected": "REJECTED",
    "uncounted": "UNCOUNTED",
    "prompt_tokens": "PROMPT",
    "cached_tokens": "CACHED",
    "generated_tokens": "GENERATED",
    "slot_s": "SLOT SECONDS",
    "cost": "COST",
}
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would compute a cell that begins so."""


def table_of(answer: pb.ListUsageResponse, shown: Collection[str]) -> Table:
    """The table, with the columns that it is grouped by."""
    keys = [key for key in KEYS if key in shown]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in keys:
        table.add_column(key.upper())
    for title in COUNTS.values():
        table.add_column(title, justify="right")
    for row in answer.usage:
        numbers = [_number(getattr(row, name)) for name in COUNTS]
        table.add_row(*(printable(getattr(row, key)) or "-" for key in keys), *numbers)
    return table


def csv_of(answer: pb.ListUsageResponse) -> str:
    """CSV with a header line and all columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*KEYS, *COUNTS))
    for row in answer.usage:
        names = (_cell(getattr(row, key)) for key in KEYS)
        writer.writerow((*names, *(getattr(row, name) for name in COUNTS)))
    return text.getvalue()


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _cell(name: str) -> str:
    return f"'{name}" if name.startswith(FORMULA) else name
