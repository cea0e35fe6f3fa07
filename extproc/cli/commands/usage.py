"""`coxswain usage`: requests, tokens and slot-seconds by client, objective and model."""

from enum import Enum
from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.durations import METAVAR, positive_duration
from extproc.cli.output import plain, print_list
from extproc.cli.rpc_command import talks
from extproc.security.foreign_text import escaped


class UsageFormat(Enum):
    """How to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Group(Enum):
    """What to group by."""

    CLIENT = "client"
    OBJECTIVE = "objective"
    MODEL = "model"
    TIER = "tier"
    TOTAL = "total"


@talks
async def usage(
    picker: AdminClient,
    by: Annotated[
        list[Group] | None,
        typer.Option(
            "--by",
            "-b",
            metavar="GROUP",
            help="Group by `client`, `objective`, `model` or `tier`; repeat it for several. By "
            "default by the first three; `total` is one sum.",
        ),
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            "--since",
            "-s",
            metavar=METAVAR,
            parser=positive_duration,
            help="Only the hours since then, such as 24h or 30d; by default all that is kept.",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, max=10_000, help="The highest number of rows."
        ),
    ] = 1000,
    output: Annotated[
        UsageFormat, typer.Option("--output", "-o", help="Output format: table, json or csv.")
    ] = UsageFormat.TABLE,
) -> None:
    """Show what clients used: requests, tokens and slot-seconds, those with the most tokens first.

    The picker counts only if the setting usage.path names a file (docs/usage.md).

    \b
    Examples:
      coxswain usage --by client --since 30d
      coxswain usage -o csv > usage.csv
      coxswain usage --by total -o json | jq .usage[0].generated_tokens
    """
    from extproc.cli.screens.usage_table import csv_of, table_of
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    groups = [f"USAGE_GROUP_{group.name}" for group in by or ()]
    request = pb.ListUsageRequest(since_s=since or 0.0, by=groups, limit=limit)
    answer = await picker.ask(picker.admin.ListUsage, request)
    if output is UsageFormat.JSON:
        print_list("usage", plain(answer))
    elif output is UsageFormat.CSV:
        typer.echo(escaped(csv_of(answer)), nl=False)
    else:
        from extproc.cli.output import console

        shown = {group.value for group in by} if by else {"client", "objective", "model"}
        console().print(table_of(answer, shown))
