"""`coxswain scale`: the number of servers that each model needs."""

from typing import Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import (
    Format,
    OutputOption,
    PoolOption,
    console,
    plain,
    print_list,
    print_table,
    seconds,
)
from extproc.cli.rpc_command import talks

NUMBERS: Final = ("WANTED", "SERVERS", "QUEUED", "BUSY", "PER MIN", "TIME", "SLOTS")


@talks
async def scale(
    picker: AdminClient,
    objective: Annotated[
        str,
        typer.Option("--objective", metavar="NAME", help="Count only requests of this objective."),
    ] = "",
    pool: PoolOption = "",
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

    answer = await picker.ask(
        picker.admin.ListScale, pb.ListScaleRequest(objective=objective, pool=pool)
    )
    if output is Format.JSON:
        print_list("models", plain(answer))
        return
    if not answer.models:
        console().print("no server has reported a model, and scale.models names none")
        return
    pools = ("POOL",) if any(one.pool for one in answer.models) else ()
    rows = (
        [
            *(one.pool for _ in pools),
            one.model or "(none known)",
            str(one.wanted),
            str(one.servers),
            str(one.queued_slots),
            str(one.busy_slots),
            f"{one.arrivals_per_s * 60:.1f}",
            seconds(one.service_s) if one.HasField("service_s") else "",
            f"{one.slots:g}" if one.HasField("slots") else "",
            one.meaning,
        ]
        for one in answer.models
    )
    print_table((*pools, "MODEL", *NUMBERS, "WHY"), NUMBERS, rows)
