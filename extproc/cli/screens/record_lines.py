"""Ended requests and events as lines, once or as they come; and one request in words."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import ROOMY, Format, console, plain, print_json, print_list, seconds
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

POLL_S: Final = 1.0
REJECTED: Final = "rejected"
STYLES: Final = {"served": "green", "withdrawn": "yellow", "broken": "red", REJECTED: "red"}
EVENT_STYLES: Final = {
    **dict.fromkeys(("ready", "recovered", "model-loaded", "joined", "reloaded"), "green"),
    **dict.fromkeys(("ejected", "unreachable", "model-failed", "reload-rejected"), "red"),
    **dict.fromkeys(("issue", "overflow", "bypassed", "rule-off", "took-over"), "yellow"),
    **STYLES,
}
RIGHT: Final = frozenset({"QUEUE", "FIRST", "TOTAL", "TOKENS"})
WHOLE: Final = RIGHT | {"ENDED", "EXCHANGE"}
"""Columns that do not give way where the screen is narrow: what is copied, and numbers."""


async def show_records(
    picker: AdminClient, request: pb.ListRecordsRequest, output: Format, *, is_watching: bool
) -> None:
    """Print the ended requests, and with `is_watching` those that end, until interrupted. Raises
    `PickerError`."""
    has_titles = False

    def print_more(answer: pb.ListRecordsResponse) -> None:
        nonlocal has_titles
        if answer.records:
            console().print(_record_table(answer, has_titles=not has_titles))
            has_titles = True

    print_words = print_more if is_watching else _print_records
    call = picker.admin.ListRecords
    await _show(picker, call, request, "records", output, print_words, is_watching=is_watching)


async def show_events(
    picker: AdminClient, request: pb.ListEventsRequest, output: Format, *, is_watching: bool
) -> None:
    """Print the events, and with `is_watching` those that come, until interrupted. Raises
    `PickerError`."""

    def print_words(answer: pb.ListEventsResponse) -> None:
        for event in answer.events:
            console().print(_event_line(event), soft_wrap=True)
        if not (answer.events or is_watching):
            console().print(Text("no events"))

    call = picker.admin.ListEvents
    await _show(picker, call, request, "events", output, print_words, is_watching=is_watching)


async def _show(
    picker: AdminClient,
    call: Any,
    request: Any,
    name: str,
    output: Format,
    print_words: Callable[[Any], None],
    *,
    is_watching: bool,
) -> None:
    """Print what a call lists as `name`, and with `is_watching` what is new each `POLL_S`."""
    while True:
        answer = await picker.ask(call, request)
        if output is not Format.JSON:
            print_words(answer)
        elif is_watching:
            for one in getattr(answer, name):
                print_json(plain(one), is_line=True)
        else:
            print_list(name, plain(answer))
        if not is_watching:
            return
        request.after, request.instance = answer.last, answer.instance
        await asyncio.sleep(POLL_S)


def _event_line(event: pb.FleetEvent) -> Text:
    line = Text(f"{_when(event.at)}  ")
    line.append(event.kind, style=EVENT_STYLES.get(event.kind, "bold"))
    where = event.endpoint_name or event.endpoint
    line.append(f"  {printable(where)}: " if where else "  ")
    line.append(printable(event.text))
    return line


def _print_records(answer: pb.ListRecordsResponse) -> None:
    screen = console()
    if answer.records:
        screen.print(_record_table(answer))
        screen.print()
    total = f"{answer.total} ended"
    if answer.total > len(answer.records):
        total += f"; the newest {len(answer.records)} are shown (--limit)"
    screen.print(Text(total))


def _record_table(answer: pb.ListRecordsResponse, *, has_titles: bool = True) -> Table:
    is_roomy = console().width >= ROOMY
    has_clients = any(record.client for record in answer.records)
    titles = ["ENDED", *["REQUEST"] * is_roomy, "EXCHANGE", "OUTCOME", "ENDPOINT"]
    titles += ["CLIENT"] * has_clients + ["MODEL"] * is_roomy
    titles += ["QUEUE", *["FIRST"] * is_roomy, "TOTAL", *["TOKENS"] * is_roomy]
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=has_titles)
    table.padding = (0, 1, 0, 0)
    for title in titles:
        table.add_column(
            title,
            justify="right" if title in RIGHT else "left",
            no_wrap=title in WHOLE,
            overflow="fold",
        )
    has_date = is_roomy and not all(map(_is_of_today, answer.records))
    for record in answer.records:
        word = record.reason if record.outcome == REJECTED else record.outcome
        cells = [
            Text(_when(record.ended_at, has_date=has_date)),
            *[Text(printable(record.request_id) or "-")] * is_roomy,
            Text(record.exchange_id),
            Text(word, style=STYLES.get(record.outcome, "")),
            Text(printable(record.endpoint_name or record.endpoint) or "-"),
            *[Text(printable(record.client) or "-")] * has_clients,
            *[Text(printable(record.model) or "-")] * is_roomy,
            Text(seconds(record.waited_s)),
            *[Text(_first_token(record))] * is_roomy,
            Text(seconds(record.duration_s)),
            *[Text(_tokens(record))] * is_roomy,
        ]
        table.add_row(*cells)
    return table


def _first_token(record: pb.RequestRecord) -> str:
    return seconds(record.first_token_s) if record.HasField("first_token_s") else ""


def _tokens(record: pb.RequestRecord) -> str:
    is_known = record.is_counted and record.HasField("generated_tokens")
    return str(record.generated_tokens) if is_known else ""


def show_request(answer: pb.ShowRequestResponse) -> None:
    """Print one request and where its time went."""
    record, screen = answer.record, console()
    screen.print(Text(_headline(record), style="bold"))
    for line in _details(record, answer.cause):
        screen.print(Text(f"  {printable(line)}"))
    screen.print()
    if answer.summary:
        screen.print(Text(f"{answer.summary}:"))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for part in answer.parts:
        took = f"{part.seconds:.2f}s" if part.seconds < 99.5 else seconds(part.seconds)
        about = "" if part.is_exact else "about "
        table.add_row(f"{about}{took}", part.name, Text(printable(part.text)))
    screen.print(table)
    if answer.beside:
        screen.print(Text(printable(f"{answer.beside[0].upper()}{answer.beside[1:]}.")))
    if answer.same_id:
        others = ", ".join(answer.same_id[:5])
        screen.print(Text(f"Others had the same request id: {others}"))


def _headline(record: pb.RequestRecord) -> str:
    place = printable(record.endpoint_name or record.endpoint)
    match record.state, record.outcome:
        case "ended", "served":
            what = f"was served by {place}"
        case "ended", "rejected":
            what = f"was rejected: {record.reason}"
        case "ended", "withdrawn":
            what = "was withdrawn: its client, or Envoy, left before it got to a server"
        case "ended", _:
            what = f"broke off at {place}" if place else "broke off"
        case "queued", _:
            what = "is queued"
        case "reading", _:
            what = "is still arriving"
        case _:
            what = f"runs on {place}"
    status = f", status {record.status}" if record.status else ""
    total = "after" if record.state == "ended" else "for"
    took = f"{record.duration_s:.2f}s" if record.duration_s < 9.95 else seconds(record.duration_s)
    return f"{record.exchange_id} {what}{status}, {total} {took}"


def _details(record: pb.RequestRecord, cause: str) -> list[str]:
    named = {
        "request": record.request_id,
        "client": record.client,
        "pool": record.pool,
        "model": record.model,
        "objective": record.objective,
        "criticality": record.criticality,
        "path": record.path,
    }
    lines = [", ".join(f"{name} {value}" for name, value in named.items() if value)]
    if record.state == "ended":
        ago = seconds(max(0.0, time.time() - record.ended_at))
        lines.append(f"ended {ago} ago, at {_when(record.ended_at)}")
    lines.append(cause)
    if record.attempts > 1:
        served = "; the last one served it" if record.outcome == "served" else ""
        lines.append(f"Envoy tried {record.attempts} servers{served}")
    if record.tier > 1:
        lines.append(f"it spilled to tier {record.tier}")
    return [line for line in lines if line]


def _is_of_today(record: pb.RequestRecord) -> bool:
    return time.localtime(record.ended_at)[:3] == time.localtime()[:3]


def _when(at: float, *, has_date: bool = True) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S" if has_date else "%H:%M:%S", time.localtime(at))
