"""`coxswain`, as a program that is given its commands."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from extproc.cli.rpc_command import hands_down

ABOUT = """Coxswain is an endpoint picker: it selects a llama-server with a free slot for Envoy, and
queues requests while all slots are busy.

\b
Examples:
  coxswain up
  coxswain serve --config coxswain.yaml
  coxswain endpoints
  coxswain --picker gpu-1:9003 --ca ca.pem queue

The options of the connection may stand before or behind a command that asks a picker.
"""


def application(
    commands: Iterable[Callable[..., None]], groups: Mapping[str, typer.Typer]
) -> typer.Typer:
    """`coxswain` with these commands, and groups of commands by their names."""
    app = typer.Typer(
        name="coxswain",
        help=ABOUT,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_coxswain)
    for command in commands:
        app.command()(command)
    for name, group in groups.items():
        app.add_typer(group, name=name)
    _use_words(app)
    return app


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from extproc.app.version import own_version

        typer.echo(f"coxswain {own_version()}")
        raise typer.Exit


@hands_down
def _coxswain(
    _context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


class _Argument(TyperArgument):
    """Its name says what it is."""

    def display_type_rich(self, ctx: Any) -> str | None:  # noqa: ARG002 - typer's signature
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return [self.display_name_raw if self.required else f"[{self.display_name_raw}]"]


class _Command(TyperCommand):
    """A command whose help names its arguments in words, without the types of Python."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.__class__ = _Argument


def _use_words(app: typer.Typer) -> None:
    """Let all commands that were added so far have such help."""
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _use_words(group.typer_instance)
