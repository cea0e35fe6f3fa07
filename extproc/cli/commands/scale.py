"""`coxswain scale`: the number of servers that each model needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, OutputOption, console, plain, print_list, printable, seconds
from extproc.cli.rpc_command import talks

if TYPE_CHECKING:
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

TITLES: Final = (
    *("MODEL", "WANTED", "SERVERS", "QUEUED", "BUSY", "PER MIN", "TIME", "SLOTS", "WHY"),
)


@talks
async def scale(
    picker: AdminClient,
    objective: Annotated[
        str,
        typer.Option("--objective", metavar="NAME", help="Count only requests of this objective."),
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show how many servers each model needs, and why.

    QUEUED and BUSY are slots, PER MIN arriving requests, TIME the slot-seconds of a request, SLOTS
    those of one server. docs/scaling.md has the formula.

    \b
    Examples:
      coxswain scale
      coxswain scale -o json | jq '.models[] | {model, wanted}'
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.ListScale, pb.ListScaleRequest(objective=objective))
    if output is Format.JSON:
        print_list("models", plain(answer))
    else:
        _show(answer)


def _show(answer: pb.ListScaleResponse) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if not answer.models:
        screen.print("no server has reported a model, and scale.models names none")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in TITLES:
        is_text = title in ("MODEL", "WHY")
        table.add_column(title, justify="left" if is_text else "right", overflow="fold")
    for one in answer.models:
        table.add_row(
            Text(printable(one.model) or "(none known)"),
            Text(str(one.wanted)),
            Text(str(one.servers)),
            Text(str(one.queued_slots)),
            Text(str(one.busy_slots)),
            Text(f"{one.arrivals_per_s * 60:.1f}"),
            Text(seconds(one.service_s) if one.HasField("service_s") else ""),
            Text(f"{one.slots:g}" if one.HasField("slots") else ""),
            Text(one.meaning),
        )
    screen.print(table)
