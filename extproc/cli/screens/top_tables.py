"""The tables of `coxswain top`: issues, endpoints with their slots, requests; one line each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table
from rich.text import Text

from extproc.cli.output import ROOMY, seconds, word
from extproc.cli.screens.endpoint_table import GUESS, called, models, state
from extproc.cli.screens.request_table import STYLES
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

RIGHT: Final = frozenset({"BUSY", "AGE", "WAITED", "EXPECTED"})
SIGNS: Final = {"leased": "█", "foreign": "▒", "idle": "·", "unusable": "x"}
ASCII_SIGNS: Final = {"leased": "#", "foreign": "+", "idle": ".", "unusable": "x"}
BAR_STYLES: Final = {"leased": "blue", "foreign": "yellow", "idle": "dim", "unusable": "dim red"}
"""The signs differ also without colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Columns that single cells may take, so that the others need not give way."""

    name: int
    state: int
    bar: int
    client: int


NARROW: Final = Widths(name=21, state=18, bar=12, client=10)
"""A terminal of 80 columns: an address, `degraded draining`, and a dozen slots."""
WIDE: Final = Widths(name=44, state=35, bar=24, client=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the screen has to fit; without `height_lines` it is as long as it needs to be."""

    address: str
    width: int
    height_lines: int | None = None
    is_ascii: bool = False

    @property
    def is_roomy(self) -> bool:
        return self.width >= ROOMY

    @property
    def widths(self) -> Widths:
        return WIDE if self.is_roomy else NARROW


def issue_lines(problems: Iterable[str], endpoints: Iterable[pb.Endpoint]) -> list[Text]:
    """The problems of the picker's sources, then each endpoint's issues, with remedies."""
    return [_one_line(f"! {problem}", style="yellow") for problem in problems] + [
        _one_line(
            f"! {called(endpoint)}: {issue.code}: {issue.message} -> {issue.remedy}", style="yellow"
        )
        for endpoint in endpoints
        for issue in endpoint.issues
    ]


def endpoint_lines(endpoints: Sequence[pb.Endpoint], frame: Frame) -> Table | Text:
    """One for each endpoint, with its slots as a bar; with tokens if slots share a context."""
    if not endpoints:
        return Text("no endpoints yet; add one with `coxswain endpoints add HOST:PORT`")
    widths = frame.widths
    has_tokens = any(endpoint.HasField("tokens") for endpoint in endpoints)
    table = _table(
        *("ENDPOINT", "STATE", "SLOTS", "BUSY"), *["TOKENS"] * has_tokens, *("MODEL", "AGE")
    )
    for endpoint in endpoints:
        slots = endpoint.slots
        name = called(endpoint) if frame.is_roomy else endpoint.name or endpoint.address
        table.add_row(
            _one_line(name, widths.name),
            _shortened(state(endpoint), widths.state),
            slot_bar(slots, widths.bar, is_ascii=frame.is_ascii),
            f"{slots.leased + slots.foreign}/{slots.total}" if slots.total else "-",
            *[_tokens(endpoint, is_roomy=frame.is_roomy)] * has_tokens,
            _one_line(models(endpoint)),
            seconds(endpoint.observed_age_s) if endpoint.HasField("observed_age_s") else "never",
        )
    return table


def _tokens(endpoint: pb.Endpoint, *, is_roomy: bool) -> str:
    """What is free of a shared context, with `?` where it is a guess that it is shared; `coxswain
    endpoints` says what settles it."""
    if not endpoint.HasField("tokens"):
        return ""
    tokens = endpoint.tokens
    doubt = "?" if tokens.source == GUESS else ""
    if not is_roomy:
        free = tokens.free
        return f"{free if free < 10_000 else f'{free // 1000}k'} free{doubt}"
    return f"{tokens.held} held {tokens.reserved} reserved {tokens.free} free/{tokens.total}{doubt}"


def request_lines(requests: Sequence[pb.Request], frame: Frame) -> Table | Text:
    """One for each request."""
    has_models = any(request.model for request in requests)
    has_criticalities = any(request.criticality not in ("", "standard") for request in requests)
    has_clients = any(request.client for request in requests)
    table = _table(
        *("EXCHANGE", "STATE", "ENDPOINT"),
        *["CLIENT"] * has_clients,
        *["MODEL"] * has_models,
        *["CRITICALITY"] * has_criticalities,
        "AGE",
        *["WAITED"] * frame.is_roomy,
        "EXPECTED",
    )
    for request in requests:
        name = word("RequestState", pb.RequestState.Name(request.state))
        position = f" {request.queue_position}" if request.queue_position else ""
        table.add_row(
            _one_line(request.exchange_id),
            Text(f"{name}{position}", style=STYLES.get(name, "")),
            _one_line(request.endpoint_name or request.endpoint, frame.widths.name),
            *[_one_line(request.client, frame.widths.client)] * has_clients,
            *[_one_line(request.model)] * has_models,
            *[_one_line(request.criticality, 11)] * has_criticalities,
            seconds(request.age_s),
            *[seconds(request.waited_s)] * frame.is_roomy,
            seconds(request.expected_s) if request.HasField("expected_s") else "",
        )
    return table


def slot_bar(slots: pb.Slots, width: int, *, is_ascii: bool = False) -> Text:
    """One sign for each slot; where they are more than `width`, each kind's share of it."""
    counts = {kind: getattr(slots, kind) for kind in SIGNS}
    if sum(counts.values()) > width:
        counts = _shares(counts, width)
    signs = ASCII_SIGNS if is_ascii else SIGNS
    bar = Text(no_wrap=True)
    for kind, count in counts.items():
        bar.append(signs[kind] * count, style=BAR_STYLES[kind])
    return bar


def _shares(counts: dict[str, int], width: int) -> dict[str, int]:
    """Whole numbers that add up to `width`; what is there at all gets at least 1."""
    total = sum(counts.values())
    shares = {kind: max(int(count > 0), count * width // total) for kind, count in counts.items()}
    largest = max(counts, key=lambda kind: counts[kind])
    shares[largest] += width - sum(shares.values())
    return shares


def _table(*titles: str) -> Table:
    """A table of one line a row; where it is too wide, models are shortened."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(
            title,
            justify="right" if title in RIGHT else "left",
            no_wrap=title != "MODEL",
            min_width=len(title),
        )
    return table


def _one_line(text: str, max_width: int | None = None, style: str = "") -> Text:
    line = Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")
    return line if max_width is None else _shortened(line, max_width)


def _shortened(text: Text, max_width: int) -> Text:
    text.truncate(max_width, overflow="ellipsis")
    return text
