"""Writes docs/commands.md from the commands themselves: `make docs`."""

from collections import Counter
from collections.abc import Container, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from extproc.cli.admin_client import EXIT_CODES
from extproc.cli.root import root
from extproc.cli.rpc_command import CONNECTION_OPTIONS

Command = TyperCommand | TyperGroup

OPENING = """# Commands
Written by `make docs` from the commands themselves; `--help` says the same, with examples. Options
of several commands are [below](#shared-options), those that [connect](#connection) to a picker too.

"""
TABLE = """
| option | meaning |
|---|---|
"""
SHARED = """
## Shared options
Each command names those that it takes.
"""
CONNECTION = """
## Connection
How a command reaches the picker. These talk to none and take no such option: """
MANY: Final = 3
"""An option that as many commands have in common is described once."""


def page() -> str:
    """The whole page as Markdown."""
    commands = list(commands_below())
    rows = Counter(_row(option) for _, command in commands for option in _own(command))
    shared: dict[str, str] = {}  # by the name: only the most common of one name
    for row, count in rows.most_common():
        if count >= MANY:
            shared.setdefault(row.split("`")[1], row)
    links = [f"[`{name.partition(' ')[2]}`](#{_anchor(name)})" for name, _ in commands]
    parts = [OPENING, f"{', '.join(links)}\n"]
    parts += [_section(name, command, shared.values()) for name, command in commands]
    parts += [SHARED, TABLE, *shared.values()]
    apart = [f"`{name.partition(' ')[2]}`" for name, each in commands if not _connection_of(each)]
    connected = next(command for _, command in commands if _connection_of(command))
    parts += [CONNECTION, f"{', '.join(apart)}.\n", TABLE, *map(_row, _connection_of(connected))]
    parts.append(f"\n{' '.join(EXIT_CODES.split())}\n")
    return "".join(parts)


def commands_below(
    command: Command | None = None, name: str = "coxswain"
) -> Iterator[tuple[str, Command]]:
    """Every command that does something, by its full name, in the order of `--help`."""
    if command is None:
        found = typer.main.get_command(root)
        assert isinstance(found, TyperGroup)
        command = found
    does_something = not isinstance(command, TyperGroup) or command.invoke_without_command
    if does_something and name != "coxswain":
        yield name, command
    if isinstance(command, TyperGroup):
        for part, below in command.commands.items():
            assert isinstance(below, TyperCommand | TyperGroup)
            yield from commands_below(below, f"{name} {part}")


def _section(name: str, command: Command, shared: Container[str]) -> str:
    arguments = [p for p in command.params if isinstance(p, TyperArgument)]
    shown = " ".join([name, *(_argument(argument) for argument in arguments)])
    usage = f"\n    {shown}\n" if arguments else ""
    text = f"\n## `{name}`\n{_description(command)}\n{usage}"
    rows = {option: _row(option) for option in _own(command)}
    if own := [row for row in rows.values() if row not in shared]:
        text += TABLE + "".join(own)
    if also := [f"`{option.opts[0]}`" for option, row in rows.items() if row in shared]:
        text += f"\nShared options: {', '.join(also)}.\n"
    return text


def _own(command: Command) -> list[TyperOption]:
    """The options of a command but those that connect it to a picker."""
    connection = _connection_of(command)
    return [option for option in _options(command) if option not in connection]


def _options(command: Command) -> list[TyperOption]:
    return [p for p in command.params if isinstance(p, TyperOption) and not p.hidden]


def _connection_of(command: Command) -> list[TyperOption]:
    found = [p for p in _options(command) if p.name in CONNECTION_OPTIONS]
    return found if len(found) == len(CONNECTION_OPTIONS) else []


def _row(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" `{_kind(option)}`"
    meaning = (option.help or "").replace("|", "\\|")
    variable = f" Also `{option.envvar}`." if option.envvar else ""
    default = option.default
    is_shown = not option.is_flag and default and not callable(default)
    shown = getattr(default, "value", default) if is_shown else None
    if isinstance(option.show_default, str):
        shown = option.show_default
    default_text = f" By default `{shown}`." if shown else ""
    return f"| {names}{value} | {meaning}{default_text}{variable} |\n"


def _kind(option: TyperOption) -> str:
    if option.metavar:
        return option.metavar.replace("|", "\\|")
    wanted = option.type_descriptor.annotation
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return "\\|".join(str(choice.value) for choice in wanted)
    return {int: "NUMBER", float: "NUMBER", Path: "FILE"}.get(wanted, "TEXT")


def _argument(argument: TyperArgument) -> str:
    shown = argument.metavar or (argument.name or "").upper()
    return shown if argument.required else f"[{shown}]"


def _description(command: Command) -> str:
    paragraphs = (command.help or "").strip().split("\n\n")
    plain = [" ".join(p.split()) for p in paragraphs if not p.lstrip().startswith("\b")]
    return "\n\n".join(p for p in plain if not p.startswith("Exit codes:"))


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


if __name__ == "__main__":
    print(page(), end="")
