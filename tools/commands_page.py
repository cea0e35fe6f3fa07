"""Writes docs/commands.md from the commands themselves: `make docs`."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from extproc.cli.admin_client import EXIT_CODES
from extproc.cli.root import root
from extproc.cli.rpc_command import CONNECTION_OPTIONS

Command = TyperCommand | TyperGroup

OPENING = """# Commands
Written by `make docs` from the commands themselves; `--help` says the same, with examples.

| command | does |
|---|---|
"""
CONNECTION = """
## Connection
How a command reaches the picker. All of them but those that say otherwise take these options.

| option | meaning |
|---|---|
"""


def page() -> str:
    """The whole page as Markdown."""
    commands = list(commands_below())
    parts = [OPENING]
    parts += [f"| [`{name}`](#{_anchor(name)}) | {_summary(each)} |\n" for name, each in commands]
    parts += [_section(name, command) for name, command in commands]
    shared = next(command for _, command in commands if _connection_of(command))
    parts.append(CONNECTION + "".join(map(_row, _connection_of(shared))))
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


def _section(name: str, command: Command) -> str:
    arguments = [p for p in command.params if isinstance(p, TyperArgument)]
    shown = " ".join([name, *(_argument(argument) for argument in arguments)])
    usage = f"\n    {shown}\n" if arguments else ""
    own = [p for p in _options(command) if p not in _connection_of(command)]
    text = f"\n## `{name}`\n{_description(command)}\n{usage}"
    if own:
        text += "\n| option | meaning |\n|---|---|\n" + "".join(map(_row, own))
    if not _connection_of(command):
        text += "\nIt talks to no running picker.\n"
    return text


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


def _summary(command: Command) -> str:
    first = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split())


def _description(command: Command) -> str:
    paragraphs = (command.help or "").strip().split("\n\n")
    plain = [" ".join(p.split()) for p in paragraphs if not p.lstrip().startswith("\b")]
    return "\n\n".join(p for p in plain if not p.startswith("Exit codes:"))


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


if __name__ == "__main__":
    print(page(), end="")
