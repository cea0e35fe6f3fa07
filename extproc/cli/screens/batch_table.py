"""Batches as a table, with a bar for each that runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from extproc.cli.output import Format, console, print_json, print_list, seconds
from extproc.security.foreign_text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from extproc.cli.screens.batch_client import BatchClient

INTERVAL_S: Final = 1.0
BAR_CHARS: Final = 12
SHOWN: Final = 20
"""Batches in a table that follows them."""
RUNS: Final = "in_progress"


async def show_batches(client: BatchClient, id_: str, output: Format, *, is_watching: bool) -> None:
    """Show one batch or all, once or until the ones that run have ended."""
    if not is_watching:
        found = await _found(client, id_)
        if output is Format.JSON:
            print_json(found[0]) if id_ else print_list("data", {"data": found})
        else:
            console().print(_table(found))
        return
    if output is Format.JSON:
        async for found in _followed(client, id_):
            for batch in found:
                print_json(batch, is_line=True)
        return
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        async for found in _followed(client, id_):
            live.update(_table(found[:SHOWN]), refresh=True)


async def _found(client: BatchClient, id_: str) -> list[dict[str, Any]]:
    if id_:
        return [await client.batch(id_)]
    return list((await client.batches())["data"])


async def _followed(client: BatchClient, id_: str) -> Any:
    while True:
        found = await _found(client, id_)
        yield found
        if not any(batch["status"] == RUNS for batch in found):
            return
        await asyncio.sleep(INTERVAL_S)


def _table(batches: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("BATCH", "", "DONE", "FAILED", "PER MIN", "END"):
        is_number = title in ("DONE", "FAILED", "PER MIN")
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    for batch in batches:
        table.add_row(*(Text(printable(cell)) for cell in _cells(batch)))
    if len(batches) == 1 and batches[0]["errors"]:
        return Group(table, Text(printable(batches[0]["errors"]["data"][0]["message"])))
    return table


def _cells(batch: dict[str, Any]) -> tuple[str, ...]:
    counts, progress = batch["request_counts"], batch["progress"]
    done, total = counts["completed"] + counts["failed"], counts["total"]
    runs = batch["status"] == RUNS
    return (
        batch["id"],
        bar(done, total) if runs else batch["status"],
        f"{done}/{total}",
        str(counts["failed"]),
        f"{60 * progress['lines_per_s']:.0f}" if runs else "",
        _end(progress["expected_s"]) if runs else "",
    )


def bar(done: int, total: int) -> str:
    """How much is done, as a bar."""
    filled = BAR_CHARS * done // total if total else BAR_CHARS
    return "█" * filled + "░" * (BAR_CHARS - filled)


def _end(expected_s: float | None) -> str:
    """When the rest is expected, by this machine's clock if that is within a day."""
    if expected_s is None:
        return "unknown"
    if expected_s >= 86_400:
        return f"in {seconds(expected_s)}"
    return time.strftime("%H:%M:%S", time.localtime(time.time() + expected_s))
