"""The output of commands: tables, JSON and YAML."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from extproc.security.foreign_text import escaped, json_text, printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from google.protobuf.message import Message
    from rich.console import Console


class Format(Enum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


class DocumentFormat(Enum):
    """The output formats of documents: settings, Envoy's configuration."""

    YAML = "yaml"
    JSON = "json"


OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="Output format: table or json.")
]
DocumentOption = Annotated[
    DocumentFormat, typer.Option("--output", "-o", help="Output format: yaml or json.")
]
PoolOption = Annotated[
    str, typer.Option("--pool", metavar="NAME", help="Show only what is of this pool.")
]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Keep running and show changes, until Ctrl-C.")
]


WIDE: Final = 250
"""Columns where no terminal sets a bound: what is piped to a script is not folded."""

ROOMY: Final = 110
"""Columns from which on a table has everything; narrower ones leave out what can be done without,
which JSON still has."""


def console() -> Console:
    """The console for tables."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDE)


def is_output_closed() -> bool:
    """Whether the caller has closed stdout (`>&-`), so that nobody gets what is printed."""
    return getattr(sys.stdout, "name", "") == os.devnull


def print_json(value: object, *, is_line: bool = False) -> None:
    """Print as JSON, over several lines or, for a stream of values, in one."""
    typer.echo(json_text(value, indent=None if is_line else 2))


def print_list(name: str, values: Mapping[str, Any], *, is_line: bool = False) -> None:
    """Print a list as JSON: its items below `name`, then how many there are, then the rest of
    `values`. There may be more than are printed: `total` of `values` says so."""
    items = values[name]
    print_json({name: items, "total": len(items), **values}, is_line=is_line)


def print_answer(output: Format, answer: Message, sentence: str, *, is_line: bool = False) -> None:
    """Print an answer as JSON, or the sentence that says it to people."""
    if output is Format.JSON:
        print_json(plain(answer), is_line=is_line)
    else:
        typer.echo(escaped(sentence))


def print_table(
    titles: Iterable[str], numbers: Container[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print rows of cells below these titles; those in `numbers` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def print_document(content: object, output: DocumentFormat, *, heading: str = "") -> None:
    """Print as YAML, below `heading` (comments), or as JSON, which has no comments."""
    import yaml

    if output is DocumentFormat.JSON:
        print_json(content)
        return
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    typer.echo(heading + text, nl=False)


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON has it: every field by its name, enums as their short, lower-case words.

    A field that may be unset and is, becomes null, and an enum's number that no word has stays one.
    `/status` has the same JSON.
    """
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return dict(sorted(value.items()))
    if field.is_repeated:
        return [_single(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else word(field.enum_type.name, known.name)
    return value


def word(enum: str, name: str) -> str:
    """`HEALTH_READY` of the enum `Health` as `ready`."""
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in enum)
    return name.removeprefix(prefix.lstrip("_").upper() + "_").lower().replace("_", "-")


def counted(many: int, noun: str) -> str:
    """The number with its noun: `1 request`, `2 requests`."""
    return f"{many} {noun}{'' if many == 1 else 's'}"


def seconds(value: float) -> str:
    """A duration in a few characters: `0.4s`, `12s`, `3m05s`, `2h10m`."""
    if value < 9.95:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
