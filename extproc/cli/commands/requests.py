"""`coxswain requests`: lists requests, shows where the time of one went, and cancels them."""

from typing import Annotated

import typer

from extproc.cli import completion
from extproc.cli.admin_client import AdminClient
from extproc.cli.commands.queue import LimitOption
from extproc.cli.durations import METAVAR, positive_duration
from extproc.cli.output import Format, OutputOption, PoolOption, WatchOption, print_answer
from extproc.cli.rpc_command import talks

group = typer.Typer(rich_markup_mode=None)

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A request id or an exchange id.",
        autocompletion=completion.requests,
    ),
]


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
    client: Annotated[
        str,
        typer.Option(
            "--client", metavar="NAME", help="Show only requests with the key of this client."
        ),
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Show only requests for this model.")
    ] = "",
    pool: PoolOption = "",
    since: Annotated[
        float | None,
        typer.Option(
            "--since",
            "-s",
            metavar=METAVAR,
            parser=positive_duration,
            help="Show the requests that ended since then, such as 10m or 24h.",
        ),
    ] = None,
    outcome: Annotated[
        str,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="Show the ended requests with this outcome: `served`, `rejected`, "
            "`withdrawn`, `broken` or the reason of a rejection.",
        ),
    ] = "",
    limit: LimitOption = 50,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show running requests and those whose body still arrives, then the queue. With --since or
    --outcome show ended requests, the newest last; with -w also those that end.

    The picker keeps the last `records.size` ended requests, and more with `records.path`. `requests
    show` says where the time of one went.

    \b
    Examples:
      coxswain requests --endpoint gpu-1
      coxswain requests --client team-a --since 10m
      coxswain requests --outcome queue-timeout -w
      coxswain requests -o json | jq -r '.requests[] | select(.age_s > 600) | .exchange_id'
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    if since is None and not outcome:
        from extproc.cli.screens.request_table import show_requests

        current = pb.ListRequestsRequest(
            limit=limit, endpoint=endpoint, client=client, model=model, pool=pool
        )
        await show_requests(picker, current, output, is_watching=watch)
        return
    from extproc.cli.screens.record_lines import show_records

    ended = pb.ListRecordsRequest(
        since_s=since or 0.0,
        client=client,
        model=model,
        endpoint=endpoint,
        outcome=outcome,
        pool=pool,
        limit=limit,
    )
    await show_records(picker, ended, output, is_watching=watch)


@group.command()
@talks
async def show(
    picker: AdminClient,
    id_: IdArgument,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one request, running, queued or ended, and where its time went.

    Tokens and the server's own times are known where usage.path is set. What is not known is said
    to be unknown. Requests that take no slot are not kept.

    \b
    Examples:
      coxswain requests show 443f40b28dacae2e
      coxswain requests show 443f40b28dacae2e -o json | jq .record.waits
    """
    from extproc.cli.output import plain, print_json
    from extproc.cli.screens.record_lines import show_request
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.ShowRequest, pb.ShowRequestRequest(id=id_))
    if output is Format.JSON:
        print_json(plain(answer))
    else:
        show_request(answer)


@group.command()
@talks
async def cancel(
    picker: AdminClient,
    id_: IdArgument,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a request.

    If its response has not begun, it is rejected with 503 and the reason `cancelled`, otherwise cut
    off. Its server stops working on it.

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
