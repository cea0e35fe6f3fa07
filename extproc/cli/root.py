"""Puts the commands together. A new one is a module with `register`, named in `COMMANDS`.

What a command needs is imported when it runs, so that `coxswain --help` answers at once.
"""

from typing import Annotated

import typer

from extproc.cli.commands import (
    agent,
    config,
    endpoints,
    envoy,
    explain,
    keeper,
    keys,
    members,
    models,
    queue,
    reload,
    requests,
    scale,
    serve,
    status,
    top,
    up,
    usage,
)
from extproc.cli.rpc_command import hands_down
from extproc.cli.worded_help import use_words

COMMANDS = (
    up,
    serve,
    agent,
    keeper,
    status,
    top,
    endpoints,
    models,
    scale,
    queue,
    requests,
    usage,
    keys,
    members,
    explain,
    config,
    envoy,
    reload,
)

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

root = typer.Typer(
    name="coxswain",
    help=ABOUT,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from extproc.app.version import own_version

        typer.echo(f"coxswain {own_version()}")
        raise typer.Exit


@root.callback()
@hands_down
def _coxswain(
    _context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


for command in COMMANDS:
    command.register(root)
use_words(root)
