"""Shows the progress of a drain."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.output import Format, console, counted, plain, print_json
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import escaped

State = pb.DrainResponse


async def follow_drains(
    picker: AdminClient, endpoints: Sequence[str], deadline_s: float, output: Format
) -> None:
    """Drain all of them at once and show the progress, of several only the results; raises
    `PickerError` unless all requests end."""
    is_alone = len(endpoints) == 1
    drains = (follow_drain(picker, one, deadline_s, output, has_bar=is_alone) for one in endpoints)
    results = await asyncio.gather(*drains, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures[1:]:
        print(escaped(f"coxswain: {failure}"), file=sys.stderr)
    if failures:
        raise failures[0]


async def follow_drain(
    picker: AdminClient, endpoint: str, deadline_s: float, output: Format, *, has_bar: bool = True
) -> None:
    """Drain and show the progress; raises `PickerError` unless all requests end."""
    messages = picker.follow(
        picker.admin.Drain, pb.DrainRequest(address=endpoint, deadline_s=deadline_s)
    )
    try:
        if output is Format.JSON:
            last = await _as_json(messages, endpoint)
        else:
            last = await _as_bar(messages, endpoint, has_bar=has_bar)
    except asyncio.CancelledError:
        taken_back = f"`coxswain endpoints activate {endpoint}` ends it"
        print(f"coxswain: {endpoint} stays draining; {taken_back}", file=sys.stderr)
        raise
    if last.state == State.STATE_DEADLINE_PASSED:
        raise PickerError(
            ExitCode.NOT_YET,
            f"{counted(last.running, 'request')} still running on {endpoint} after "
            f"{deadline_s:g} s; it stays draining",
        )
    if last.state != State.STATE_DRAINED:
        raise PickerError(
            ExitCode.REJECTED, f"the drain was cancelled: {endpoint} was activated or disabled"
        )


async def _as_json(messages: AsyncIterator[pb.DrainResponse], endpoint: str) -> pb.DrainResponse:
    last = pb.DrainResponse()
    async for last in messages:
        print_json({"endpoint": endpoint, **plain(last)}, is_line=True)
    return last


async def _as_bar(
    messages: AsyncIterator[pb.DrainResponse], endpoint: str, *, has_bar: bool
) -> pb.DrainResponse:
    last = pb.DrainResponse()
    screen = console()
    columns = (
        TextColumn("draining {task.fields[endpoint]}"),
        BarColumn(),
        TextColumn("{task.fields[running]} running"),
        TimeElapsedColumn(),
    )
    # Where the output is piped, a bar would leave an empty line behind.
    is_off = not has_bar or not screen.is_terminal
    with Progress(*columns, console=screen, transient=True, disable=is_off) as progress:
        task = progress.add_task("", total=None, endpoint=endpoint, running="?")
        async for last in messages:
            progress.update(
                task,
                total=max(1, last.running_at_start),
                completed=last.running_at_start - last.running,
                running=last.running,
            )
    if last.state == State.STATE_DRAINED:
        screen.print(f"{endpoint} is drained: {counted(last.running_at_start, 'request')} ended")
    return last
