"""`coxswain models` and `coxswain logs`: the models of machines with a keeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, OutputOption, console, plain, print_json, printable, seconds
from extproc.cli.rpc_command import talks

if TYPE_CHECKING:
    from extproc.pb.coxswain.v1 import admin_pb2 as pb


def register(root: typer.Typer) -> None:
    """Add the commands to the root command."""
    root.command("models")(models)
    root.command("logs")(logs)


@talks
async def models(picker: AdminClient, output: OutputOption = Format.TABLE) -> None:
    """Show the models of all machines with a keeper, and where they are loaded.

    \b
    Examples:
      coxswain models
      coxswain models -o json | jq '.models[] | select(.state == "loaded") | .name'
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.ListModels, pb.ListModelsRequest())
    if output is Format.JSON:
        print_json(plain(answer))
    else:
        _show(answer)


def _show(answer: pb.ListModelsResponse) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if not answer.machines:
        screen.print("no machine has a keeper; `coxswain keeper --help` says how to run one")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("MODEL", "MACHINE", "STATE", "SINCE", "MIB", "RUNNING", "SLOTS", "LOAD", "WHY"):
        is_number = title in ("SINCE", "MIB", "RUNNING", "SLOTS", "LOAD")
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for one in answer.models:
        table.add_row(
            Text(printable(one.name)),
            Text(printable(one.machine)),
            Text(one.state),
            Text(seconds(one.state_age_s)),
            Text(str(one.memory_mb)),
            Text(str(one.running)),
            Text(str(one.slots)),
            Text(seconds(one.load_s) if one.HasField("load_s") else ""),
            Text(printable(one.problem)),
        )
    screen.print(table)
    for machine in answer.machines:
        gone = "" if machine.is_connected else "; its keeper is not connected"
        screen.print(
            Text(f"{machine.name}: {machine.used_mb} of {machine.memory_mb} MiB used{gone}")
        )


@talks
async def logs(
    picker: AdminClient,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="machine/model, or model if one machine has it."),
    ],
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, max=2000, help="The number of last lines to show."
        ),
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show further lines, until Ctrl-C.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log of a model's llama-server, from its keeper.

    llama-server does not write prompts into its log, unless it is started with --verbose.

    \b
    Examples:
      coxswain logs gpu-1/qwen
      coxswain logs -f qwen
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.WatchLogRequest(model=model, lines=lines, follow=follow)
    async for part in picker.follow(picker.admin.WatchLog, request):
        if output is Format.JSON:
            print_json(plain(part), is_line=True)
            continue
        if part.dropped:
            typer.echo(f"[{part.dropped} lines were left out]", err=True)
        for line in part.lines:
            typer.echo(printable(line))
