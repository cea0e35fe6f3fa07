"""`coxswain config reload` and `coxswain config live`: the settings of a running picker."""

from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.commands import config as config_command
from extproc.cli.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    OutputOption,
    plain,
    print_document,
    print_json,
)
from extproc.cli.rpc_command import talks


def register(_root: typer.Typer) -> None:
    """Add the commands to the config group."""
    config_command.group.command()(reload)
    config_command.group.command()(live)


@talks
async def reload(
    picker: AdminClient,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would change.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Reload the settings of a running picker.

    Settings that can change while requests run take effect at once; the others are listed as
    needing a restart. If the settings have an error, the old ones stay (exit code 1).

    \b
    Example:
      coxswain config reload --dry-run
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(
        picker.admin.ReloadSettings, pb.ReloadSettingsRequest(dry_run=dry_run)
    )
    if output is Format.JSON:
        print_json(plain(answer))
        return
    if answer.applied:
        typer.echo(f"{'would change' if dry_run else 'changed'}: {', '.join(answer.applied)}")
    if answer.needs_restart:
        typer.echo(f"after a restart: {', '.join(answer.needs_restart)}")
    if not answer.applied and not answer.needs_restart:
        typer.echo("nothing changed")


@talks
async def live(picker: AdminClient, output: DocumentOption = DocumentFormat.YAML) -> None:
    """Print the settings that a running picker uses. They contain no secrets.

    \b
    Examples:
      coxswain config live | grep timeout_s
      coxswain config live -o json | jq .queue.timeout_s
    """
    import json

    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.GetSettings, pb.GetSettingsRequest())
    source = f"# from {answer.file}\n" if answer.file else ""
    print_document(json.loads(answer.json), output, heading=source)
