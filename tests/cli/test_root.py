"""Claims about extproc/cli/root.py: the commands as a whole."""

from __future__ import annotations

from typer.main import get_command

from extproc.cli.root import COMMANDS, GROUPS, root
from tests.cli.typed_command import Command

NAMES = [
    *("up", "serve", "agent", "status", "version", "top", "load", "unload"),
    *("pin", "logs", "scale", "usage", "members", "explain", "events"),
    *("keeper", "endpoints", "models", "queue", "requests", "batch", "keys", "config"),
]


def test_every_command_is_reported_with_its_help(coxswain: Command) -> None:
    """Without a command, and for one that is not there, the way out is shown."""
    assert list(getattr(get_command(root), "commands")) == NAMES  # noqa: B009  # no type has it
    assert len(COMMANDS) + len(GROUPS) == len(NAMES)
    helped = coxswain("--help")
    assert helped.code == 0 and all(f"\n  {name} " in helped.out for name in NAMES)
    missing = coxswain("serv")
    assert missing.code == 2 and "No such command 'serv'" in missing.err
    assert coxswain().code == 2


def test_the_version_is_one_line(coxswain: Command) -> None:
    """Also where it runs from its sources, without being installed."""
    ended = coxswain("--version")
    assert ended.code == 0 and ended.out.startswith("coxswain ") and ended.out.count("\n") == 1
