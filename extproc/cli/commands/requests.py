"""`coxswain requests`: lists running and queued requests, and cancels them."""

from typing import Annotated

import typer

from extproc.cli import completion
from extproc.cli.admin_client import AdminClient
from extproc.cli.commands.queue import LimitOption
from extproc.cli.output import Format, OutputOption, WatchOption, print_answer
from extproc.cli.rpc_command import talks

group = typer.Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
@talks
async def requests(
    picker: AdminClient,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            "-e",
            metavar="ENDPOINT",
            help="Show only requests on this endpoint.",
            autocompletion=completion.endpoints,
        ),
    ] = "",
    limit: LimitOption = 50,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show running requests and those whose body still arrives, the oldest first; then the queue.

    \b
    Examples:
      coxswain requests --endpoint gpu-1
      coxswain requests -o json | jq -r '.requests[] | select(.age_s > 600) | .exchange_id'
    """
    from extproc.cli.screens.request_table import show_requests
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.ListRequestsRequest(limit=limit, endpoint=endpoint)
    await show_requests(picker, request, output, is_watching=watch)


@group.command()
@talks
async def cancel(
    picker: AdminClient,
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A request id or an exchange id.",
            autocompletion=completion.requests,
        ),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """End a request.

    A request that is queued, whose body still arrives, or whose server has not answered yet is
    rejected with 503 and the reason `cancelled`. A request whose response has begun is cut off. Its
    server stops working on it.

    \b
    Example:
      coxswain requests cancel 443f40b28dacae2e
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.CancelRequest, pb.CancelRequestRequest(id=id_))
    if answer.request.endpoint:
        what = f"cut off on {answer.request.endpoint_name}"
    elif answer.request.state == pb.REQUEST_STATE_QUEUED:
        what = "removed from the queue"
    else:
        what = "rejected before all of its body had arrived"
    print_answer(output, answer, f"{id_} was {what}")
