"""The screen of `coxswain top`: totals, issues, the busiest endpoints, requests."""

from collections.abc import Mapping
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from extproc.cli.output import counted, seconds, word
from extproc.cli.screens.top_data import TopData
from extproc.cli.screens.top_tables import (
    Frame,
    endpoint_lines,
    issue_lines,
    request_lines,
    slot_bar,
)
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

CRITICALITIES: Final = ("critical", "standard", "sheddable")
MAX_ISSUES: Final = 3
HEAD_LINES: Final = 7
"""The title, five lines of sums and a blank one."""
FIRST: Final = ("served", "passed", "withdrawn", "broken")
"""Outcomes in this order; rejections follow, the most frequent first."""


def screen_of(data: TopData, frame: Frame, clock: str = "", notice: str = "") -> Group:
    """All of it. `notice` says what is wrong with the picker's answers, if anything."""
    notes = [data.status.queue.idle_note] if data.status.queue.idle_note else []
    issues = issue_lines([*notes, *data.status.problems], data.endpoints)
    shown_issues = issues if frame.height_lines is None else _first(issues)
    rest = None
    if frame.height_lines is not None:
        rest = frame.height_lines - HEAD_LINES - len(shown_issues) - bool(shown_issues)
    many, running, queued = _fit(data, rest)
    parts: list[Table | Text] = [_title(data, frame, clock, notice), _sums(data, frame)]
    if shown_issues:
        parts += [Text(), *shown_issues]
    parts += [Text(), endpoint_lines(data.endpoints[:many], frame)]
    if len(data.endpoints) > many:
        parts.append(Text(f"and {len(data.endpoints) - many} more endpoints", style="dim"))
    if running or queued:
        requests = [*data.queued[:queued], *data.running[:running]]
        parts += [Text(), request_lines(requests, frame)]
        more = _more(data.status, running, queued)
        if more:
            parts.append(Text(more, style="dim"))
    return Group(*parts)


def _first(issues: list[Text]) -> list[Text]:
    if len(issues) <= MAX_ISSUES:
        return issues
    rest = len(issues) - MAX_ISSUES + 1
    more = Text(f"! and {rest} more; see `coxswain endpoints`", style="yellow")
    return [*issues[: MAX_ISSUES - 1], more]


def _fit(data: TopData, lines: int | None) -> tuple[int, int, int]:
    """The numbers of endpoints, running and queued requests that fit into `lines`."""
    endpoints, running, queued = map(len, (data.endpoints, data.running, data.queued))
    if lines is None:
        return endpoints, running, queued
    overhead = 5  # two headings, a blank line, two lines about what is not shown
    space = max(0, lines - overhead)
    for_requests = min(running + queued, max(space // 2, space - endpoints))
    shown = min(endpoints, max(1, space - for_requests))
    for_queued = min(queued, max((for_requests + 1) // 2, for_requests - running))
    return shown, min(running, for_requests - for_queued), for_queued


def _title(data: TopData, frame: Frame, clock: str, notice: str) -> Table:
    status = data.status
    left = Text(no_wrap=True, overflow="ellipsis")
    left.append("coxswain", style="bold")
    left.append(f" {printable(status.version)} at {frame.address}, up {seconds(status.uptime_s)}, ")
    if notice:
        left = Text(notice, style="bold reverse", no_wrap=True, overflow="ellipsis")
    elif status.is_ready:
        left.append("ready", style="green")
    else:
        left.append(f"not ready: {printable('; '.join(status.not_ready))}", style="bold red")
    title = Table.grid(expand=True, padding=(0, 1))
    title.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    title.add_column(justify="right", no_wrap=True)
    title.add_row(left, Text(clock))
    return title


def _sums(data: TopData, frame: Frame) -> Table:
    status, slots = data.status, data.status.slots
    counts = f"  {slots.leased} leased, {slots.foreign} foreign, {slots.idle} idle"
    counts += f", {slots.unusable} unusable" * bool(slots.unusable) + f" of {slots.total}"
    width = max(8, min(60, frame.width - len(counts) - 11))
    bar = slot_bar(slots, width, is_ascii=frame.is_ascii)
    bar.append(counts)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    envoys = f", {counted(len(status.envoys), 'Envoy')} connected" if status.envoys else ""
    rows = {
        "Slots": bar,
        "Endpoints": _endpoint_sums(data),
        "Running": Text(counted(status.running, "request") + envoys),
        "Queued": _queued(status),
        "Ended": _ended(status.outcomes),
    }
    for label, value in rows.items():
        value.no_wrap, value.overflow = True, "ellipsis"
        grid.add_row(Text(label, style="bold"), value)
    return grid


def _endpoint_sums(data: TopData) -> Text:
    healths = dict(data.status.endpoints_by_health)
    many = sum(healths.values())
    ready = healths.pop("ready", 0)
    text = Text(f"{ready} of {many} ready")
    for health, count in sorted(healths.items()):
        text.append(f", {count} {health}", style="red" if health == "down" else "yellow")
    for intent in (pb.INTENT_DRAINING, pb.INTENT_DISABLED):
        count = sum(endpoint.intent == intent for endpoint in data.endpoints)
        if count:
            name = word("Intent", pb.Intent.Name(intent))
            text.append(f", {count} {name}", style="magenta")
    return text


def _queued(status: pb.GetStatusResponse) -> Text:
    text = Text(f"{status.queue.queued} (at most {status.queue.max_requests})")
    counts = status.queue.by_criticality
    queued = [f"{counts[name]} {name}" for name in CRITICALITIES if counts.get(name)]
    if queued:
        text.append(f": {', '.join(queued)}")
    if status.queue.HasField("longest_wait_s"):
        text.append(f"; longest {seconds(status.queue.longest_wait_s)}", style="yellow")
    if status.queue.HasField("expected_s"):
        text.append(f", all served in {seconds(status.queue.expected_s)}")
    return text


def _ended(outcomes: Mapping[str, int]) -> Text:
    def order(item: tuple[str, int]) -> tuple[int, int, str]:
        name, count = item
        return (FIRST.index(name) if name in FIRST else len(FIRST), -count, name)

    text = Text("" if outcomes else "none yet")
    for index, (name, count) in enumerate(sorted(outcomes.items(), key=order)):
        is_rejection = name not in FIRST or name == "broken"
        style = "yellow" if is_rejection else ""
        text.append(f"{', ' * bool(index)}{count:,} {printable(name)}", style=style)
    return text


def _more(status: pb.GetStatusResponse, running: int, queued: int) -> str:
    more = []
    if status.running > running:
        more.append(f"{status.running - running} more running")
    if status.queue.queued > queued:
        more.append(f"{status.queue.queued - queued} more queued")
    return f"and {', '.join(more)}" if more else ""
