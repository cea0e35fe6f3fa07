"""Requests as a table, once or repeatedly."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import ROOMY, Format, console, plain, print_list, seconds, word
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

REFRESH_S: Final = 1.0
STYLES: Final = {"reading": "blue", "queued": "yellow", "running": "green", "responding": "green"}
EQUAL: Final = (
    "Positions count the requests for the same endpoints: those with equal ones do not wait for "
    "each other."
)
RIGHT: Final = frozenset({"POSITION", "AGE", "WAITED", "EXPECTED"})
Cell = Callable[[pb.Request], Text]
WHOLE: Final = RIGHT | {"EXCHANGE", "STATE"}
"""Columns that do not give way where the screen is narrow: what is copied, and numbers."""


async def show_requests(
    picker: AdminClient, request: pb.ListRequestsRequest, output: Format, *, is_watching: bool
) -> None:
    """Print what matches, once or each second until interrupted; raises `PickerError`."""
    answer = await picker.ask(picker.admin.ListRequests, request)
    if output is Format.JSON:
        print_list("requests", plain(answer), is_line=is_watching)
        while is_watching:
            await asyncio.sleep(REFRESH_S)
            answer = await picker.ask(picker.admin.ListRequests, request)
            print_list("requests", plain(answer), is_line=True)
        return
    screen = console()
    if not is_watching:
        screen.print(table_of(answer))
        return
    with Live(table_of(answer), console=screen, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(REFRESH_S)
            answer = await picker.ask(picker.admin.ListRequests, request)
            live.update(table_of(answer), refresh=True)


def table_of(answer: pb.ListRequestsResponse) -> Group:
    """The table, with the totals."""
    total = Text(f"{answer.total_running} running, {answer.total_queued} queued")
    if answer.total > len(answer.requests):
        total.append(f"; {len(answer.requests)} of {answer.total} are shown (--limit)")
    if not answer.requests:
        return Group(total)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.padding = (0, 1, 0, 0)
    columns = _columns(answer.requests, is_roomy=console().width >= ROOMY)
    for title in columns:
        table.add_column(
            title,
            justify="right" if title in RIGHT else "left",
            no_wrap=title in WHOLE,
            overflow="fold",
        )
    for request in answer.requests:
        table.add_row(*(cell(request) for cell in columns.values()))
    positions = [request.queue_position for request in answer.requests if request.queue_position]
    if len(positions) > len(set(positions)):
        total.append(f"\n{EQUAL}")
    return Group(table, Text(), total)


def _columns(requests: Sequence[pb.Request], *, is_roomy: bool) -> dict[str, Cell]:
    """The columns that these requests need. A narrow screen has one for the endpoints of running
    requests and why the others wait, and none for models."""
    has_endpoints = any(request.endpoint for request in requests)
    has_reasons = any(request.wait_reason for request in requests)
    columns: dict[str, Cell] = {}
    if is_roomy:
        columns["REQUEST"] = lambda one: Text(printable(one.request_id) or "-")
    columns |= {"EXCHANGE": lambda one: Text(one.exchange_id), "STATE": _state}
    columns["POSITION"] = _position
    if has_endpoints and has_reasons and not is_roomy:
        columns["ENDPOINT, WHY"] = lambda one: _endpoint(one) if one.endpoint else _why(one)
    else:
        columns |= {"ENDPOINT": _endpoint} if has_endpoints else {}
        columns |= {"WHY": _why} if has_reasons else {}
    if any(request.pool for request in requests):
        columns["POOL"] = lambda one: Text(one.pool)
    if any(request.client for request in requests):
        columns["CLIENT"] = lambda one: Text(printable(one.client))
    if is_roomy and any(request.model for request in requests):
        columns["MODEL"] = lambda one: Text(printable(one.model))
    if any(request.criticality not in ("", "standard") for request in requests):
        columns["CRITICALITY"] = lambda one: Text(one.criticality)
    columns["AGE"] = lambda one: Text(seconds(one.age_s))
    columns["WAITED"] = lambda one: Text(seconds(one.waited_s))
    columns["EXPECTED"] = _expected
    return columns


def _state(request: pb.Request) -> Text:
    state = word("RequestState", pb.RequestState.Name(request.state))
    return Text(state, style=STYLES.get(state, ""))


def _position(request: pb.Request) -> Text:
    place = request.queue_position
    return Text(f"{place} of {request.queued}" if place else "")


def _endpoint(request: pb.Request) -> Text:
    return Text(printable(request.endpoint_name or request.endpoint))


def _why(request: pb.Request) -> Text:
    return Text(printable(request.note or request.wait_reason))


def _expected(request: pb.Request) -> Text:
    return Text(seconds(request.expected_s) if request.HasField("expected_s") else "")


def position_line(message: pb.WatchQueueResponse) -> str:
    """One line for each change of the queue position."""
    waited = f"waited {seconds(message.waited_s)}"
    match message.state:
        case pb.WatchQueueResponse.STATE_QUEUED:
            soon = (
                f", about {seconds(message.expected_s)}" if message.HasField("expected_s") else ""
            )
            note = f"; {printable(message.note)}" if message.note else ""
            return f"{message.queue_position} of {message.queued}{soon} ({waited}){note}"
        case pb.WatchQueueResponse.STATE_SERVED:
            return f"served by {printable(message.endpoint_name or message.endpoint)} ({waited})"
        case _:
            return f"gone ({waited})"
