"""`coxswain top`: a live screen of the picker."""

from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.durations import METAVAR, update_interval
from extproc.cli.output import Format, OutputOption, PoolOption
from extproc.cli.rpc_command import talks


@talks
async def top(
    picker: AdminClient,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            metavar=METAVAR,
            parser=update_interval,
            show_default="1s",
            help="The time between two updates, such as 500ms or 2s.",
        ),
    ] = 1.0,
    pool: PoolOption = "",
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            metavar="N",
            min=1,
            help="End after this many updates; by default never on a terminal, and after one "
            "elsewhere.",
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Watch the fleet, the queue and the requests, the busiest endpoints first.

    Press `q` or Ctrl-C to quit. In a bar of slots, █ is leased, ▒ is foreign, · is idle, and x is
    free at a server that gets no requests. If the output is not a terminal, and with -o json, it is
    printed once.

    \b
    Examples:
      coxswain top
      coxswain top --interval 5s --picker 10.0.0.1:9003
      coxswain top -o json | jq .status.queue.queued
      coxswain top -o json -n 60 > minute.jsonl
    """
    import asyncio

    from extproc.cli.output import console, print_json
    from extproc.cli.screens.top_data import read_top_data
    from extproc.cli.screens.top_live import Top
    from extproc.cli.screens.top_screen import screen_of
    from extproc.cli.screens.top_tables import Frame

    screen = console()
    data = await read_top_data(picker, pool)
    if output is Format.TABLE and screen.is_terminal and not screen.is_dumb_terminal:
        await Top(lambda: read_top_data(picker, pool), picker.address, screen, interval, data).run(
            count
        )
        return
    frame = Frame(address=picker.address, width=screen.width, is_ascii=screen.options.ascii_only)
    for left in reversed(range(count or 1)):
        if output is Format.JSON:
            print_json(data.plain(), is_line=count is not None)
        else:
            screen.print(screen_of(data, frame))
        if left:
            await asyncio.sleep(interval)
            data = await read_top_data(picker, pool)
