"""`coxswain keeper`: starts and stops the llama-servers of one machine."""

from pathlib import Path
from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    OutputOption,
    print_document,
    print_json,
)
from extproc.cli.reporting import DrainOption, LogFormatOption, connect, set_up_log
from extproc.cli.rpc_command import talks
from extproc.security.foreign_text import escaped, printable

group = typer.Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
@talks
async def keeper(
    picker: AdminClient,
    models: Annotated[
        Path, typer.Option("--models", metavar="FILE", help="The file with this machine's models.")
    ] = Path("models.yaml"),
    advertise: Annotated[
        str,
        typer.Option(
            "--advertise",
            metavar="IP",
            help="The address at which Envoy reaches this machine; `auto` uses that on the "
            "route to the picker, `aws` that from EC2's metadata service.",
        ),
    ] = "auto",
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="The machine's name; by default its own."),
    ] = "",
    allow_replace: Annotated[
        bool,
        typer.Option(
            "--allow-replace",
            help="Let operators replace the commands of models with `coxswain models replace`. "
            "They run with the rights of the keeper.",
        ),
    ] = False,
    drain_timeout: DrainOption = 30.0,
    log_format: LogFormatOption = "human",
) -> None:
    """Start, watch and stop the llama-servers of this machine, until Ctrl-C or SIGTERM.

    docs/models.md describes the file. No llama-server outlives the keeper, even if it is killed.
    SIGHUP makes it read the file again: models whose entry is the same serve on.

    \b
    Examples:
      coxswain keeper --picker picker:9003 --models models.yaml
      coxswain keeper --picker picker:9003 --advertise 10.0.0.5 --name gpu-1
      coxswain keeper import llama-swap.yaml > models.yaml
    """
    from extproc.app.keeper import KeeperError, KeeperPlan, run_keeper
    from extproc.settings import SettingsError

    set_up_log(log_format)
    plan = KeeperPlan(
        picker=picker.address,
        models=models,
        advertise=advertise,
        name=name,
        token=picker.connection.token,
        token_file=picker.connection.token_file,
        drain_timeout_s=drain_timeout,
        allows_replace=allow_replace,
    )
    try:
        await run_keeper(plan, lambda: connect(picker))
    except (KeeperError, SettingsError) as error:
        raise PickerError(ExitCode.USAGE, str(error)) from None


@group.command("check")
def check(
    models: Annotated[
        Path, typer.Option("--models", metavar="FILE", help="The file with this machine's models.")
    ] = Path("models.yaml"),
    output: OutputOption = Format.TABLE,
) -> None:
    """Check a file of models on their machine, and show the command of each.

    Programs and model files that are not here and a `memory_mb` of 0 are named; then the exit
    status is 2.

    \b
    Example:
      coxswain keeper check --models models.yaml
    """
    import os
    import shlex

    from extproc.core.address import Address
    from extproc.keeper.command import server_command
    from extproc.keeper.launchers import launcher_of
    from extproc.keeper.machine_check import misfits
    from extproc.keeper.models_file import read_models
    from extproc.settings import SettingsError

    try:
        file = read_models(models)
    except SettingsError as error:
        typer.echo(escaped(f"coxswain: {error}"), err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    ports = file.ports()
    commands = {
        name: server_command(entry, Address.of("127.0.0.1", ports[name]))
        for name, entry in file.models.items()
    }
    if output is Format.JSON:
        print_json(commands)
    else:
        for name, entry in file.models.items():
            launcher = launcher_of(entry.cmd)
            note = f" ({launcher.program}: the keeper adds nothing)" if launcher else ""
            command = printable(shlex.join(commands[name]))
            typer.echo(f"{name}: {entry.memory_mb} MiB{note}\n  {command}")
    if found := misfits(file, os.environ):
        for text in found:
            typer.echo(f"coxswain: {models}: {printable(text)}", err=True)
        raise typer.Exit(ExitCode.USAGE)


@group.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="llama-swap's configuration.")],
    output: DocumentOption = DocumentFormat.YAML,
) -> None:
    """Print llama-swap's configuration as a file of models. What has no counterpart is named.

    \b
    Example:
      coxswain keeper import llama-swap.yaml > models.yaml
    """
    import os

    import yaml

    from extproc.keeper.llama_swap import import_llama_swap
    from extproc.keeper.models_file import parse_models
    from extproc.settings import SettingsError
    from extproc.settings.yaml_file import read_content

    try:
        imported = import_llama_swap(read_content(file), str(file), _size, os.environ)
        notes = "".join(f"# - {printable(note)}\n" for note in imported.notes)
        parse_models(yaml.safe_dump(imported.content).encode(), "the imported file")
    except SettingsError as error:
        typer.echo(escaped(f"coxswain: {error}"), err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    heading = f"# Imported from {printable(file.name)}. Check these points:\n{notes}"
    print_document(imported.content, output, heading=heading)
    for note in imported.notes:
        typer.echo(f"coxswain: {printable(note)}", err=True)


def _size(file: str) -> int | None:
    try:
        return Path(file).stat().st_size
    except (OSError, ValueError):
        return None
