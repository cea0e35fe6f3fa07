"""`coxswain members`: the machines of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, OutputOption, console, plain, print_list, printable
from extproc.cli.rpc_command import talks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.pb.coxswain.v1 import admin_pb2 as pb


@talks
async def members(picker: AdminClient, output: OutputOption = Format.TABLE) -> None:
    """Show the members of a cluster, and which of them leads.

    \b
    Examples:
      coxswain members
      coxswain members -o json | jq -r .leader
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
    cluster = answer.processes.cluster
    if output is Format.JSON:
        print_list("members", plain(cluster))
        return
    if not answer.processes.HasField("cluster"):
        typer.echo("This picker is no member of a cluster; see docs/cluster.md.")
        return
    _show(cluster.members)
    if not cluster.is_in_touch:
        typer.echo(
            f"! Valkey or the Kubernetes API does not answer: {printable(cluster.engine_error)}"
        )


def _show(found: Iterable[pb.GetStatusResponse.Member]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("member", "role", "address", "fronts", "version"):
        table.add_column(title, justify="right" if title == "fronts" else "left", overflow="fold")
    for each in found:
        role = "leader" if each.is_leading else "standby"
        cells = (each.name, role, each.address, str(each.fronts), each.version)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console().print(table)
