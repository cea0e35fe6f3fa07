"""Endpoints as a table, with a line below it for each issue."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from extproc.cli.output import ROOMY, WIDE, console, seconds, word
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

STYLES: Final = {
    "ready": "green",
    "loading": "yellow",
    "degraded": "yellow",
    "asleep": "blue",
    "off": "blue",
    "down": "red",
}
NUMBERS: Final = ("IDLE", "LEASED", "FOREIGN", "TOTAL", "AGE", "ISSUES")
YIELDING: Final = ("STATE", "MODEL")
"""Columns that give way where the screen is narrow, the wider one first. Numbers never do."""
EJECTED: Final = "ejected"
"""The issue of an endpoint that gets only trial requests."""
PLAIN: Final = ("", "llama-server")
"""Where there is nothing else, the kinds are not shown."""
UNKNOWN: Final = "?"
GUESS: Final = "guess"
"""The source of what nothing says."""
SETTLES: Final = "set context: shared or per_slot at the endpoint, or run an agent on its machine"
NARROW_NAME: Final = 21
"""What a narrow screen has for a name: any IPv4 address with its port."""


def endpoint_table(endpoints: Sequence[pb.Endpoint], width: int = WIDE) -> Table:
    """One row for each endpoint, and their sum when there are several."""
    is_roomy = width >= ROOMY
    names = [called(one) if is_roomy else one.name or one.address for one in endpoints]
    longest = max(len(name) for name in (*names, f"{len(endpoints)} endpoints"))
    table = Table(box=None, pad_edge=False, header_style="bold", footer_style="bold")
    table.padding = (0, 2 if is_roomy else 1, 0, 0)
    many = len(endpoints) > 1
    table.show_footer = many
    total = pb.Slots()
    for endpoint in endpoints:
        for name in ("idle", "leased", "foreign", "total"):
            setattr(total, name, getattr(total, name) + getattr(endpoint.slots, name))
    footers = {
        "ENDPOINT": f"{len(endpoints)} endpoints",
        "IDLE": str(total.idle),
        "LEASED": str(total.leased),
        "FOREIGN": str(total.foreign),
        "TOTAL": str(total.total),
    }
    kinds = ("KIND",) if any(one.runner not in PLAIN for one in endpoints) else ()
    pools = ("POOL",) if any(one.pool for one in endpoints) else ()
    tiers = ("TIER",) if any(one.tier > 1 for one in endpoints) else ()
    for title in (
        "ENDPOINT",
        *pools,
        *kinds,
        *tiers,
        "STATE",
        *NUMBERS[:4],
        "MODEL",
        "AGE",
        "ISSUES",
    ):
        table.add_column(
            title,
            footer=footers.get(title, "") if many else "",
            justify="right" if title in NUMBERS else "left",
            no_wrap=title not in YIELDING,
            min_width=None if title in YIELDING else len(title),
            width=min(longest, NARROW_NAME) if title == "ENDPOINT" and not is_roomy else None,
            overflow="fold",
        )
    for name, endpoint in zip(names, endpoints, strict=True):
        slots = endpoint.slots
        table.add_row(
            _one_line(name),
            *(endpoint.pool or "-" for _ in pools),
            *(_one_line(endpoint.runner) for _ in kinds),
            *(str(endpoint.tier or 1) for _ in tiers),
            state(endpoint),
            Text(str(slots.idle), style="green" if slots.idle else ""),
            str(slots.leased),
            str(slots.foreign) if is_foreign_known(endpoint) else UNKNOWN,
            str(slots.total),
            _one_line(models(endpoint)),
            seconds(endpoint.observed_age_s) if endpoint.HasField("observed_age_s") else "never",
            Text(str(len(endpoint.issues) or ""), style="yellow"),
        )
    return table


def is_foreign_known(endpoint: pb.Endpoint) -> bool:
    """Whether its slots in use by others are counted; those of a server that was never scraped, or
    of a picker of an earlier version, are shown as they are."""
    return endpoint.is_foreign_known or not endpoint.runner


def called(endpoint: pb.Endpoint) -> str:
    """Its name, if it has one, and its address."""
    return f"{endpoint.name} ({endpoint.address})" if endpoint.name else endpoint.address


def state(endpoint: pb.Endpoint) -> Text:
    """Health, what its machine does, intent, ejection and staleness."""
    health = word("Health", pb.Health.Name(endpoint.health))
    text = Text(health, style=STYLES.get(health, ""))
    if endpoint.is_waking:
        text.append(" waking", style="blue")
    elif endpoint.is_going_off:
        text.append(" going-off", style="blue")
    if endpoint.is_removed:
        text.append(" leaving", style="magenta")
    elif endpoint.intent != pb.INTENT_ACTIVE:
        text.append(f" {word('Intent', pb.Intent.Name(endpoint.intent))}", style="magenta")
    elif endpoint.is_pickable and not endpoint.is_fresh:
        text.append(" stale", style="yellow")
    if any(issue.code == EJECTED for issue in endpoint.issues):
        text.append(" ejected", style="red")
    if not endpoint.is_known_to_envoy:
        text.append(" unknown-to-envoy", style="yellow")
    return text


def intents(endpoints: Sequence[pb.Endpoint]) -> list[Text]:
    """Which endpoints are drained or disabled, and for how long."""
    lines = []
    for endpoint in endpoints:
        if endpoint.HasField("intent_age_s") and not endpoint.is_removed:
            what = word("Intent", pb.Intent.Name(endpoint.intent))
            if endpoint.intent == pb.INTENT_DRAINING and not endpoint.leases:
                what = "drained"
            running = f", {endpoint.leases} still running" if endpoint.leases else ""
            since = f"{what} for {seconds(endpoint.intent_age_s)}{running}"
            activate = f"`coxswain endpoints activate {endpoint.name or endpoint.address}` ends it"
            lines.append(Text(printable(f"{called(endpoint)}: {since}; {activate}")))
    return lines


def contexts(endpoints: Sequence[pb.Endpoint]) -> list[Text]:
    """How full the contexts are that slots share."""
    lines = []
    for endpoint in endpoints:
        if not endpoint.HasField("tokens"):
            continue
        tokens = endpoint.tokens
        is_guess = tokens.source == GUESS
        what = "4 slots, which may share" if is_guess else "its slots share"
        line = (
            f"{called(endpoint)}: {what} a context of {tokens.total} tokens: {tokens.held} held, "
            f"{tokens.reserved} reserved, {tokens.free} free"
        )
        if is_guess:
            line += f"; {SETTLES}"
        lines.append(Text(printable(line)))
    return lines


def remedies(endpoints: Sequence[pb.Endpoint]) -> list[Text]:
    """The issues with their remedies."""
    lines = []
    for endpoint in endpoints:
        for issue in endpoint.issues:
            what = printable(f"{called(endpoint)}: {issue.code}: {issue.message}")
            line = Text(what, style="yellow")
            line.append(f"\n  -> {printable(issue.remedy)}", style="default")
            lines.append(line)
    return lines


def table_of(
    endpoints: Sequence[pb.Endpoint], width: int = WIDE, problems: Iterable[str] = ()
) -> Group:
    """The table, what the picker cannot read, and the remedies, for a screen of `width` columns."""
    wrong = [Text(printable(problem), style="yellow") for problem in problems]
    if not endpoints:
        none = Text("no endpoints yet; add one with `coxswain endpoints add HOST:PORT`")
        return Group(none, *_spaced(wrong))
    notes = wrong + intents(endpoints) + contexts(endpoints) + remedies(endpoints)
    return Group(endpoint_table(endpoints, width), *_spaced(notes))


def show(endpoints: Sequence[pb.Endpoint], problems: Iterable[str]) -> None:
    """Print it once."""
    screen = console()
    screen.print(table_of(endpoints, screen.width, problems))


def _one_line(text: str) -> Text:
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _spaced(lines: list[Text]) -> list[Text]:
    return [Text(), *lines] if lines else []


def models(endpoint: pb.Endpoint) -> str:
    """The loaded ones, or else those that can be; two of them, and how many more."""
    loaded = [model.name for model in endpoint.models if model.is_loaded]
    names = loaded or [model.name for model in endpoint.models]
    shown = ", ".join(printable(name.rpartition("/")[2]) for name in names[:2])
    return f"{shown} +{len(names) - 2}" if len(names) > 2 else shown
