"""The tables as Markdown, and the page that begins with what we lose. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.compare.account import Result
from bench.compare.rates import Rate, section
from bench.compare.rates import losses as rate_losses
from bench.compare.rivals import NOT_GIVEN
from bench.compare.trace import DECODE_TOKENS_S, PREFILL_TOKENS_S, TOKENS_PER_EVENT

HEADINGS: Final = (
    *("first token, mean", "waiting, mean", "p50", "p99"),
    *("failed/cut/killed", "cached", "to a full server", "CPU"),
)
LOAD: Final = ", load "
"""Before the load in the title of a table."""
ROUNDING: Final = 1.05
"""A rival is better where its number is better by more than what two runs differ by anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One cell as it was played. `note` says how its time is scaled."""

    title: str
    note: str
    rows: Sequence[Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A column in which rivals are compared: less is better if `is_less`."""

    name: str
    of: Callable[[Result], float]
    unit: str = " ms"
    is_less: bool = True
    least: float = 0.0
    """Differences below it are none."""


COMPARED: Final = (
    Measured(
        name="mean time to first token", of=lambda one: 1000 * one.first_token.mean_s, least=2
    ),
    Measured(
        name="p99 of time to first token", of=lambda one: 1000 * one.first_token.at(0.99), least=5
    ),
    Measured(name="mean waiting", of=lambda one: 1000 * one.waiting.mean_s, least=2),
    Measured(name="p99 of waiting", of=lambda one: 1000 * one.waiting.at(0.99), least=5),
    Measured(
        name="failed, cut or killed", of=lambda one: one.failed + one.cut + one.killed, unit=""
    ),
    Measured(
        name="cached tokens",
        of=lambda one: 100 * one.cached_share,
        unit=" %",
        is_less=False,
        least=1,
    ),
    Measured(name="sent to a full server", of=lambda one: one.to_full, unit=""),
    Measured(
        name="processor time of a request",
        of=lambda one: 1e6 * one.cpu_s / max(1, one.requests),
        unit=" us",
    ),
)


def markdown(*tables: Table) -> list[str]:
    """The lines of one table. Several are of one fleet, and their numbers share its cells."""
    titles = [one.title.partition(LOAD) for one in tables]
    return [
        f"### {titles[0][0]}{LOAD if titles[0][1] else ''}{', '.join(one[2] for one in titles)}",
        "",
        " ".join(one.note for one in tables),
        "",
        f"| | {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * len(HEADINGS)}",
        *(_row(ones) for ones in zip(*(one.rows for one in tables), strict=True)),
        "",
    ]


def _by_fleet(tables: Sequence[Table]) -> list[list[Table]]:
    """Tables that differ in the load alone, together. One of a run that was interrupted has fewer
    rows, and is one for itself."""
    found: dict[tuple[str, ...], list[Table]] = {}
    for one in tables:
        alike = (one.title.partition(LOAD)[0], *(row.rival for row in one.rows))
        found.setdefault(alike, []).append(one)
    return [*found.values()]


def _row(ones: Sequence[Result]) -> str:
    first = ones[0]
    if not any(one.requests for one in ones):
        return f"| {first.rival} | {first.why} |{' |' * (len(HEADINGS) - 1)}"
    name = f"**{first.rival}**" if first.is_ours else first.rival
    cells = zip(*(_cells(one) for one in ones), strict=True)
    return f"| {name} | {' | '.join(map(_together, cells))} |"


def _together(values: Sequence[str]) -> str:
    """The numbers of one cell, or the one that all of its loads have."""
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def _cells(one: Result) -> list[str]:
    if not one.requests:
        return ["-"] * len(HEADINGS)
    waiting = one.waiting
    times_s = (one.first_token.mean_s, waiting.mean_s, waiting.at(0.5), waiting.at(0.99))
    return [
        *(_number(1000 * value) for value in times_s),
        f"{one.failed}/{one.cut}/{one.killed}",
        _number(100 * one.cached_share),
        str(one.to_full),
        _number(1e6 * one.cpu_s / one.requests),
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f}"


def _not_given(tables: Sequence[Table]) -> list[str]:
    """A line that names the rivals whose programs nobody has named."""
    played = [one.rival for table in tables for one in table.rows]
    missing = [name for name in NOT_GIVEN if not any(one.startswith(name) for one in played)]
    return [f"Not given: {', '.join(missing)}.", ""] if missing else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A column in which a rival is better than the best row of Coxswain."""

    column: Measured
    rival: str
    value: float
    ours: float

    def __str__(self) -> str:
        name, unit = self.column.name, self.column.unit
        return f"- {name}: {self.rival} {self.value:.0f}{unit}, Coxswain {self.ours:.0f}{unit}"


def losses(table: Table) -> list[Loss]:
    """Where a rival is better than the best row of Coxswain."""
    ours = [one for one in table.rows if one.is_ours and one.requests]
    theirs = [one for one in table.rows if not one.is_ours and one.requests]
    found = []
    for column in COMPARED:
        best, other = _best(ours, column), _best(theirs, column)
        if best is None or other is None or not _is_better(other[0], best[0], column):
            continue
        value, rival = other
        found.append(Loss(column=column, rival=rival.rival, value=value, ours=best[0]))
    return found


def _all_losses(tables: Sequence[Table]) -> list[str]:
    """The lines of all tables: once what is lost in each of several, then what is besides."""
    lost = {table.title: losses(table) for table in tables}
    alike = [[one for each in lost.values() for one in each if one.column is c] for c in COMPARED]
    always = [ones for ones in alike if len(ones) == len(tables) > 1]
    lines = ["In each table:", "", *(_range(ones) for ones in always), ""] if always else []
    for title, each in lost.items():
        items = [str(one) for one in each if not any(one in ones for ones in always)]
        if items or not always:
            lines += [f"{title}:", "", *(items or ["- nothing"]), ""]
    return lines


def _range(ones: Sequence[Loss]) -> str:
    name, unit = ones[0].column.name, ones[0].column.unit
    (least, most), (ours, ours_most) = (
        (min(values), max(values))
        for values in ([one.value for one in ones], [one.ours for one in ones])
    )
    return (
        f"- {name}: the best rival {least:.0f} to {most:.0f}{unit}, "
        f"Coxswain {ours:.0f} to {ours_most:.0f}{unit}"
    )


def _best(results: Sequence[Result], column: Measured) -> tuple[float, Result] | None:
    known = [(column.of(one), one) for one in results if not math.isnan(column.of(one))]
    if not known:
        return None
    choose = min if column.is_less else max
    return choose(known, key=lambda one: one[0])


def _is_better(value: float, than: float, column: Measured) -> bool:
    if abs(value - than) <= column.least:
        return False
    return value * ROUNDING < than if column.is_less else value > than * ROUNDING


def page(
    tables: Sequence[Table],
    *,
    machine: str,
    command: str,
    serial: Sequence[str],
    image: str,
    rates: Sequence[Rate] = (),
) -> str:
    """The whole page; `image` is the name of the picture beside it."""
    lines = [
        "# Comparison",
        "",
        f"Coxswain beside what people use instead: the last run of `{command}`, on {machine}",
        "",
        "## Where we lose",
        "",
        "Numbers in which a rival is better than the best row of Coxswain by more than 5 %.",
        "",
    ]
    if rates:
        items = rate_losses(rates) or ["- nothing"]
        lines += ["Rates with bodies, beside pickers:", "", *items, ""]
    lines += [
        *_all_losses(tables),
        UNEQUAL,
        *([UNEQUAL_PICKERS] if rates else []),
        "",
        "## Waits",
        "",
        f"![Waits by percentile]({image})",
        "",
    ]
    lines += ["## Tables", "", HOW_TO_READ, "", *_not_given(tables)]
    for fleet in _by_fleet(tables):
        lines += markdown(*fleet)
    return "\n".join([*lines, *section(rates), *serial]).rstrip() + "\n"


UNEQUAL: Final = """\
## What was unequal

- Clients, proxies, picker and servers share the cores of one machine. Each hop is loopback.
- Time is scaled: a hop weighs as many times more than beside real models as each table says.
- The slots of the servers were written by hand into the rivals; Coxswain found them out. That
  slots do not share a context was written into its settings.
- The hashes get a header with the name of the conversation, which clients have to send.
- All have one worker. The rivals keep connections to servers; Coxswain's Envoy opens one for each
  request ([decision 0035](decisions/0035-a-connection-for-each-request.md)).
- The servers are simulated, unless the command has `--real`, without memory bandwidth to share.
- Coxswain has learned nothing before a run. With shared contexts it runs one request at a time on
  each server until it has seen some 30 answers, from which its waits there come.
- Requests that were not served are in no time of their row."""
UNEQUAL_PICKERS: Final = """\
- Pickers of the Gateway API Inference Extension are made for vLLM. Of these servers they get the
  gauge of waiting requests, 20 times a second, and the prompts. They do not limit running requests
  and have no queue unless it is switched on. Their Envoy sends them the responses, too. All servers
  are one Pod with a port for each. Such a picker may use all cores, Coxswain's one."""
HOW_TO_READ: Final = f"""\
Several numbers in a cell are those of the loads; one holds for all. Arrivals are that many times
faster than in the trace, the service than {PREFILL_TOKENS_S:,.0f} tokens/s of prompts and
{DECODE_TOKENS_S:.0f} of answers, of which {TOKENS_PER_EVENT} tokens come at once. Times are
in ms. A wait is the time that a request took beside its time in a slot. *Cached* is the share of
prompt tokens, in %, that servers had in a cache. *To a full server* are requests that waited
inside it. *Killed* are those that ended with their server's full context. *CPU* is the processor
time of proxy and picker for each request, in us, with health checks and scrapes."""
