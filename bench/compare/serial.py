"""Clairvoyant's two cells: short and long requests at one serial server, in two orders.

Its paper (arXiv 2606.07248) reports for short requests a median latency that is 70 to 76 % lower in
a burst of 100, and 17 % lower under Poisson arrivals at 0.74 load. The long ones pay for it.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from bench.compare.account import Times
from bench.compare.cells import Server
from bench.compare.clients import End, Record
from bench.compare.rivals import Rival
from bench.compare.run import Stage
from bench.compare.trace import (
    DECODE_TOKENS_S,
    MEAN_SERVICE_S,
    PREFILL_TOKENS_S,
    SERIAL_ANSWER_TOKENS,
    SERIAL_PROMPT_TOKENS,
    SHORT_SHARE,
    TOKENS_PER_EVENT,
    Pace,
    Request,
    serial,
)
from bench.result import Say

BURST: Final = 100
LOAD: Final = 0.74
SPEED: Final = 3.0
"""Mean requests take this part of `MEAN_SERVICE_S`, so that many fit into the time."""
LEARNED: Final = 60
"""Requests before those that count, from which sizes are learned."""


HEAD: Final = f"""\
### Shortest expected first, at one serial server

Short requests (70 %) and long ones at one server with one slot, as in Clairvoyant (arXiv
2606.07248), which reports 70 to 76 % less median latency of short requests in a burst of 100 and
17 % at 0.74 load, with a predictor that reads words. Coxswain has learned from {LEARNED} requests,
and knows only how long a prompt is. Latencies are those of whole answers.

| | short p50 | short p99 | long p50 | long p99 | mean of all |
|---|---:|---:|---:|---:|---:|"""


def serial_pace() -> Pace:
    """The pace of the server."""
    mean_s = sum(
        share * (SERIAL_PROMPT_TOKENS[kind] / PREFILL_TOKENS_S + answer / DECODE_TOKENS_S)
        for share, (kind, answer) in zip(
            (SHORT_SHARE, 1 - SHORT_SHARE), SERIAL_ANSWER_TOKENS.items(), strict=True
        )
    )
    factor = SPEED * mean_s / MEAN_SERVICE_S
    return Pace(PREFILL_TOKENS_S * factor, DECODE_TOKENS_S * factor / TOKENS_PER_EVENT, factor)


def serial_requests(seconds: float) -> dict[str, list[Request]]:
    """The requests of both cells."""
    random = Random(3)
    rate = LOAD / (MEAN_SERVICE_S / SPEED)
    learned_s = [number / rate for number in range(LEARNED)]
    first_s = learned_s[-1] + 1.0
    times_s = []
    at_s = first_s
    while (at_s := at_s + random.expovariate(rate)) < first_s + seconds:
        times_s.append(at_s)
    learned = serial(random, learned_s, kinds=False)
    return {
        f"burst of {BURST}": [*learned, *serial(random, [first_s] * BURST)],
        f"Poisson, load {LOAD:g}": [*learned, *serial(random, times_s)],
    }


async def play_serial(rivals: Sequence[Rival], seconds: float, say: Say) -> list[str]:
    """The section with both cells, first come beside shortest expected, which is the last."""
    lines = HEAD.splitlines()
    for title, requests in serial_requests(seconds).items():
        rows = []
        for rival in rivals:
            say(f"one serial server, {title}: {rival.name}")
            stage = Stage((Server(slots=1),), requests, serial_pace())
            records, _ = await stage.play(rival)
            found = Found(records)
            rows.append(found)
            lines.append(found.row(f"{title}: {rival.name}"))
        lines += [rows[1].change(title, rows[0])] if len(rows) == 2 else []
    return [*lines, ""]


class Found:
    """What came of one cell in one order."""

    def __init__(self, records: Sequence[Record]) -> None:
        served = [one for one in records if one.end == End.SERVED and one.kind]
        self._lost = sum(bool(one.kind) for one in records) - len(served)
        self._took = {
            kind: Times(sorted_s=sorted(one.took_s for one in served if kind in ("all", one.kind)))
            for kind in ("short", "long", "all")
        }

    @property
    def numbers_s(self) -> list[float]:
        """The numbers of a row; NaN for what was not served."""
        short, long = self._took["short"], self._took["long"]
        percentiles = [short.at(0.5), short.at(0.99), long.at(0.5), long.at(0.99)]
        return [*percentiles, self._took["all"].mean_s]

    def row(self, name: str) -> str:
        """A row of the table."""
        cells = " | ".join(f"{1000 * value:.0f} ms" for value in self.numbers_s)
        return f"| {name}{f', {self._lost} not served' if self._lost else ''} | {cells} |"

    def change(self, title: str, before: "Found") -> str:
        """A row with the differences to another one."""
        pairs = zip(before.numbers_s, self.numbers_s, strict=True)
        changes = " | ".join(f"{100 * (now / then - 1):+.0f} %" for then, now in pairs)
        return f"| {title}: change | {changes} |"
