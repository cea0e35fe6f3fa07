"""The pages name the commands and options that there are, and all of them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import ROOT, Page, page, pages
from tools.commands_page import commands_below
from tools.commands_page import page as commands_page

if TYPE_CHECKING:
    from typer.core import TyperCommand, TyperGroup

COMMANDS: Final[dict[str, TyperCommand | TyperGroup]] = dict(commands_below())
GROUPS: Final = {name.rpartition(" ")[0] for name in COMMANDS}
ALWAYS: Final = {"-h", "--help", "--version", "--install-completion", "--show-completion"}


def _said(one: Page) -> list[str]:
    """Every call of `coxswain` on a page, up to the next word of the shell."""
    lines = [*one.spans(), *(line for block in one.blocks() for line in block.text.splitlines())]
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
