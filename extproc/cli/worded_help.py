"""The help of commands names their arguments in words, without the types of Python."""

from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand


class _Argument(TyperArgument):
    """Its name says what it is."""

    def display_type_rich(self, ctx: Any) -> str | None:  # noqa: ARG002 - typer's signature
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return [self.display_name_raw if self.required else f"[{self.display_name_raw}]"]


class _Command(TyperCommand):
    """A command with such arguments."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.__class__ = _Argument


def use_words(app: typer.Typer) -> None:
    """Let all commands that were added so far have such help."""
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            use_words(group.typer_instance)
