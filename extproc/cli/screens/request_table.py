"""Requests as a table, once or repeatedly."""

import asyncio
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
    has_models = any(request.model for request in answer.requests)
    has_criticalities = any(
        request.criticality not in ("", "standard") for request in answer.requests
    )
    has_clients = any(request.client for request in answer.requests)
    has_pools = any(request.pool for request in answer.requests)
    has_reasons = any(request.wait_reason for request in answer.requests)
    has_endpoints = any(request.endpoint for request in answer.requests)
    has_request_ids = console().width >= ROOMY
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.padding = (0, 1, 0, 0)
    titles = ["REQUEST"] * has_request_ids + ["EXCHANGE", "STATE", "POSITION"]
    titles += ["ENDPOINT"] * has_endpoints
    titles += ["POOL"] * has_pools
    titles += ["WHY"] * has_reasons + ["CLIENT"] * has_clients
    titles += ["MODEL"] * has_models + ["CRITICALITY"] * has_criticalities
    for title in (*titles, "AGE", "WAITED", "EXPECTED"):
        table.add_column(
            title,
            justify="right" if title in RIGHT else "left",
            no_wrap=title in WHOLE,
            overflow="fold",
        )
    for request in answer.requests:
        state = word("RequestState", pb.RequestState.Name(request.state))
        cells = [Text(printable(request.request_id) or "-")] * has_request_ids
        cells += [
            Text(request.exchange_id),
            Text(state, style=STYLES.get(state, "")),
            Text(f"{request.queue_position} of {request.queued}" if request.queue_position else ""),
        ]
        cells += [Text(printable(request.endpoint_name or request.endpoint))] * has_endpoints
        cells += [Text(request.pool)] * has_pools
        cells += [Text(printable(request.note or request.wait_reason))] * has_reasons
        cells += [Text(printable(request.client))] * has_clients
        cells += [Text(printable(request.model))] * has_models + [
            Text(request.criticality)
        ] * has_criticalities
        cells += [
            Text(seconds(request.age_s)),
            Text(seconds(request.waited_s)),
            Text(seconds(request.expected_s) if request.HasField("expected_s") else ""),
        ]
        table.add_row(*cells)
    positions = [request.queue_position for request in answer.requests if request.queue_position]
    if len(positions) > len(set(positions)):
        total.append(f"\n{EQUAL}")
    return Group(table, Text(), total)


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
