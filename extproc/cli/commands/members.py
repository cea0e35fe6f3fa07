"""`coxswain members`: the machines of a cluster."""

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, OutputOption, plain, print_list, print_table
from extproc.cli.rpc_command import talks
from extproc.security.foreign_text import printable


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
    rows = (
        [
            each.name,
            "leader" if each.is_leading else "standby",
            each.address,
            str(each.fronts),
            each.version,
        ]
        for each in cluster.members
    )
    print_table(("member", "role", "address", "fronts", "version"), ("fronts",), rows)
    if not cluster.is_in_touch:
        typer.echo(
            f"! Valkey or the Kubernetes API does not answer: {printable(cluster.engine_error)}"
        )
