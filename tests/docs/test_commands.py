"""The pages name the commands and options that there are, and all of them."""

from __future__ import annotations

import re
import shlex
from typing import Final

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from extproc.cli.root import root as cli_root
from tests.docs.pages import ROOT, Page, page, pages
from tools.commands_page import commands_below
from tools.commands_page import page as commands_page

COMMANDS: Final[dict[str, TyperCommand | TyperGroup]] = dict(commands_below())
GROUPS: Final = {name.rpartition(" ")[0] for name in COMMANDS}
ALWAYS: Final = {"-h", "--help", "--version", "--install-completion", "--show-completion"}


def _said(one: Page) -> list[str]:
    """Every call of `coxswain` on a page, up to the next word of the shell."""
    lines = [*one.spans(), *(line for block in one.blocks() for line in block.text.splitlines())]
    lines = [line for line in lines if "helm install" not in line]
    for container in ("docker compose exec coxswain ", "exec deploy/coxswain -- "):
        lines = [line.replace(container, "") for line in lines]
    calls = [call for line in lines for call in re.findall(r"(?:^|[\s$(/])(coxswain .*)", line)]
    return [re.split(r" [|>&;]|[|;)]| #", call)[0] for call in calls]


@pytest.mark.parametrize("one", pages(), ids=lambda one: str(one.path.relative_to(ROOT)))
def test_commands_exist(one: Page) -> None:
    """What a page tells to type is a command, with options that it has."""
    for call in _said(one):
        words = shlex.split(call.replace("…", "").replace("'", '"').replace('"', ""))
        name = words.pop(0)
        while words and f"{name} {words[0]}" in COMMANDS.keys() | GROUPS:
            name = f"{name} {words.pop(0)}"
        assert name in COMMANDS or name in GROUPS, f"{call!r} is no command"
        if name == "coxswain":
            assert not words or not words[0].isalpha(), call
        known = set(ALWAYS)
        for parameter in COMMANDS[name].params if name in COMMANDS else ():
            known |= {*parameter.opts, *parameter.secondary_opts}
        for word in words:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in known, f"{call!r}: no option {word}"


def test_commands_page_is_up_to_date() -> None:
    """docs/commands.md holds every command with every option: `make docs` writes it."""
    assert page("docs/commands.md").text == commands_page(), "run: make docs"


def _all() -> dict[str, TyperCommand | TyperGroup]:
    """Groups too: they have a help of their own."""
    root = get_command(cli_root)
    assert isinstance(root, TyperGroup)
    groups = {"coxswain": root}
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            groups[f"coxswain {name}"] = command
    return COMMANDS | groups


@pytest.mark.parametrize(("name", "command"), _all().items())
def test_every_help_has_an_example_of_its_own(
    name: str, command: TyperCommand | TyperGroup
) -> None:
    """A caller learns more from one than from all the options."""
    _, _, examples = (command.help or "").partition("Example")
    calls = re.findall(r"\b(coxswain .*)", examples)
    assert calls, f"{name} --help has no example"
    for call in calls:
        assert call.startswith(name), call
