"""`coxswain queue`: the queued requests."""

from typing import Annotated

import typer

from extproc.cli import completion
from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.output import Format, OutputOption, PoolOption, WatchOption, plain, print_json
from extproc.cli.rpc_command import talks

group = typer.Typer(rich_markup_mode=None)

LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        "-n",
        metavar="N",
        min=1,
        max=10_000,
        help="The highest number of requests to show.",
    ),
]


@group.callback(invoke_without_command=True)
@talks
async def queue(
    picker: AdminClient,
    limit: LimitOption = 50,
    pool: PoolOption = "",
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show the queued requests by their positions. `queue watch` follows one request.

    \b
    Examples:
      coxswain queue
      coxswain queue --watch
      coxswain queue -o json | jq .total_queued
    """
    from extproc.cli.screens.request_table import show_requests
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.ListRequestsRequest(limit=limit, states=[pb.REQUEST_STATE_QUEUED], pool=pool)
    await show_requests(picker, request, output, is_watching=watch)


@group.command("watch")
@talks
async def watch_position(
    picker: AdminClient,
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A request id or an exchange id.",
            autocompletion=completion.queued_requests,
        ),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """Follow a queued request until it is served (exit code 0) or gone (exit code 1).

    \b
    Example:
      coxswain queue watch 6f1c2a44-1df0-4a60-b3fd-2c8f8e1d0a55
    """
    from extproc.cli.screens.request_table import position_line
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    last = pb.WatchQueueResponse()
    async for last in picker.follow(picker.admin.WatchQueue, pb.WatchQueueRequest(id=id_)):
        if output is Format.JSON:
            print_json(plain(last), is_line=True)
        else:
            typer.echo(position_line(last))
    if last.state != pb.WatchQueueResponse.STATE_SERVED:
        raise PickerError(ExitCode.REJECTED, f"request {id_} was rejected, or its client left")
