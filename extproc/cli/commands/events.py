"""`coxswain events`: what happened to the fleet and to clients."""

from typing import Annotated

import typer

from extproc.cli import completion
from extproc.cli.admin_client import AdminClient
from extproc.cli.durations import METAVAR, positive_duration
from extproc.cli.output import Format, OutputOption
from extproc.cli.rpc_command import talks


@talks
async def events(
    picker: AdminClient,
    since: Annotated[
        float | None,
        typer.Option(
            "--since",
            "-s",
            metavar=METAVAR,
            parser=positive_duration,
            help="Only events since then, such as 10m or 2h; by default all that are kept.",
        ),
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            "-e",
            metavar="ENDPOINT",
            help="Show only events of this endpoint, which may have left.",
            autocompletion=completion.endpoints,
        ),
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Show only events of this model.")
    ] = "",
    client: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="NAME",
            help="Show only events of this client's keys, budgets and, with --outcome, requests.",
        ),
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--kind", metavar="KIND", help="Show only events of this kind, such as `ejected`."
        ),
    ] = "",
    outcome: Annotated[
        str,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="Show the ends of requests instead: `served`, `rejected`, `withdrawn`, "
            "`broken` or the reason of a rejection.",
        ),
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, max=10_000, help="The highest number to show."
        ),
    ] = 100,
    output: OutputOption = Format.TABLE,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running and show new ones, until Ctrl-C.")
    ] = False,
) -> None:
    """Show what happened to the fleet and to clients' keys and budgets, the newest last.
    docs/operations.md lists the kinds.

    The picker keeps the last 2,000; its log has more. --outcome lists ends of requests, as far back
    as `coxswain requests --outcome` does.

    \b
    Examples:
      coxswain events --since 1h
      coxswain events -w --endpoint gpu-1
      coxswain events --client team-a --since 24h
      coxswain events -w --outcome broken --endpoint gpu-1
      coxswain events --kind ejected -o json | jq -r '.events[].endpoint_name'
    """
    from extproc.cli.screens.record_lines import show_events
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.ListEventsRequest(
        since_s=since or 0.0,
        endpoint=endpoint,
        model=model,
        client=client,
        kind=kind,
        outcome=outcome,
        limit=limit,
    )
    await show_events(picker, request, output, is_watching=watch)
