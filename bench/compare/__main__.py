"""`make compare`: the same requests through Coxswain and what people use instead."""

import argparse
import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.__main__ import machine
from bench.compare import cells as plan
from bench.compare.account import Result
from bench.compare.cells import Cell
from bench.compare.page import Table, markdown, page
from bench.compare.picture import picture
from bench.compare.rates import SIZES, Rate, contenders, play_rates, section
from bench.compare.rivals import Rival, rivals
from bench.compare.run import Stage
from bench.compare.serial import play_serial
from bench.compare.trace import (
    LONGEST_PROMPT_TOKENS,
    MADE_UP_BLOCK_TOKENS,
    MEAN_SERVICE_S,
    made_up_conversations,
    pace_of,
    requests_of,
    sample,
    service_s,
    window,
)
from bench.public_traces import (
    MOONCAKE_BLOCK_TOKENS,
    PUBLIC_TRACES,
    TraceRow,
    read_public_traces,
)
from extproc.demo.llama_server import find_llama_server
from extproc.demo.process import ChildError

SECONDS, QUICK_SECONDS = 15.0, 6.0
AROUND_S = 6.0
"""What a run takes beside its seconds: starting and stopping everything."""
MADE_UP_ROWS = 20_000
DEFAULT_FILE = Path("build/comparison.md")
QUICK_ROWS = (
    "Coxswain, first come, prefix affinity",
    "Envoy, round robin",
    "Envoy, least request",
    "Envoy, ring hash, bounded load",
    "nginx, least_conn",
    "HAProxy, maxconn",
)
EXAMPLES = """
examples:
  make compare COMPARE="--quick"                       a first impression, in three minutes
  make compare COMPARE="--write docs/comparison.md"    the page and its picture beside it
  make compare COMPARE="--only Coxswain --only HAProxy --load 0.9 --fleet uneven --no-faults"
  make compare COMPARE="--trace FOLDER"                public traces too; FOLDER has
                                                       azure2023/*.csv and mooncake/*.jsonl, as
                                                       bench/public_traces.py says
  make compare COMPARE="--real"                        real llama-servers with a tiny model, on as
                                                       fast a machine as you have
  make compare COMPARE="--rival 'traefik=./start-traefik {port} {servers} {slots}'"
  make compare COMPARE="--picker 'llm-d 0.4.0=/usr/local/bin/epp' --no-faults"
"""


class Comparison:
    """Plays all cells; `tables` are those that are complete, or as far as they are."""

    def __init__(self, given: argparse.Namespace, rows: Sequence[Rival]) -> None:
        self.tables: list[Table] = []
        self.serial: list[str] = []
        self.rates: list[Rate] = []
        self._given = given
        self._rivals = [one for one in rows if not one.has_rates_only]
        self._in_rates = [] if given.real else contenders(rows)
        traces = read_public_traces(given.trace) if given.trace else {}
        self._traces = {plan.MADE_UP: made_up_conversations(MADE_UP_ROWS), **traces}
        self._cells = plan.cells([*traces], given.load, given.fleet)
        self._cells += [] if given.no_faults or given.real else plan.FAULTS
        if given.quick:
            self._cells = [
                one for one in self._cells if (one.load, one.fleet) == (0.9, plan.UNEVEN)
            ]
            self._cells += plan.FAULTS[:1]
        self._done = 0
        self._in_two_orders = [one for one in rows if one.is_ours and "no affinity" in one.name]
        self._has_serial = not (given.quick or given.real or given.no_serial)
        self._serial_runs = 2 * len(self._in_two_orders) if self._has_serial else 0
        played = sum(not one.missing for one in self._rivals)
        self._runs = len(self._cells) * played + self._serial_runs + bool(given.real)
        self._runs += len(self._in_rates) + len(SIZES) if self._in_rates else 0

    @property
    def seconds(self) -> float:
        """How long it will take about."""
        each_s: float = self._given.seconds + AROUND_S
        return (self._runs - self._done) * each_s

    async def play(self) -> None:
        """Everything, one run after the other."""
        self._say_length()
        capacity = await self._measure_capacity() if self._given.real else None
        for cell in self._cells:
            await self._play(cell, capacity)
        if self._in_rates:
            self.rates = await play_rates(self._in_rates, self._say)
            print("\n".join(section(self.rates)), flush=True)
        if self._has_serial:
            self.serial = await play_serial(self._in_two_orders, self._given.seconds, self._say)

    async def _play(self, cell: Cell, capacity: float | None) -> None:
        longest = LONGEST_PROMPT_TOKENS
        if cell.fleet[0].shared_tokens:
            longest = cell.fleet[0].shared_tokens // 2
        rows = [one for one in self._traces[cell.trace] if one.prompt_tokens <= longest]
        stage, note = self._stage(cell, rows, capacity)
        results: list[Result] = []
        self.tables.append(Table(title=cell.title, note=note, rows=results))
        for rival in self._rivals:
            if rival.missing:
                results.append(_nothing(rival, f"not installed: {rival.missing}"))
                continue
            if cell.dies and rival.needs_kubelet:
                results.append(_nothing(rival, "not played: its kubelet would notice"))
                continue
            self._say(f"{cell.title}: {rival.name}")
            try:
                results.append((await stage.play(rival))[1])
            except (ChildError, TimeoutError) as error:
                tail = getattr(error, "tail", "")
                print(f"{rival.name}: {str(error) or 'served nothing'}\n{tail}", file=sys.stderr)
                results.append(_nothing(rival, "did not start"))
        print("\n".join(markdown(self.tables[-1])), flush=True)

    def _stage(
        self, cell: Cell, rows: Sequence[TraceRow], capacity: float | None
    ) -> tuple[Stage, str]:
        """`capacity` are the requests a second that real servers were measured to do."""
        pace, seconds = pace_of(rows), self._given.seconds
        origin = ""
        if cell.trace != plan.MADE_UP:
            rate = capacity or cell.capacity_slots / MEAN_SERVICE_S
            sampled = sample(rows, int(cell.load * rate * seconds))
            origin = f", the first of a sample of {len(sampled):,} of {len(rows):,}"
            rows = sampled
        if capacity is None:
            work_s = cell.load * cell.capacity_slots * seconds
            taken = window(rows, seconds, work_s, lambda row: service_s(row, pace))
            speed = f"service {pace.factor:.0f} times faster"
        else:
            taken = window(rows, seconds, cell.load * capacity * seconds, lambda _: 1.0)
            speed = f"real llama-servers that do {capacity:.0f} requests/s"
        note = (
            f"{len(taken):,} requests in {taken[-1].at_s:.0f} s{origin}; arrivals "
            f"{(rows[len(taken) - 1].at_s - rows[0].at_s) / taken[-1].at_s:.0f} times, {speed}."
        )
        block = MADE_UP_BLOCK_TOKENS if cell.trace == plan.MADE_UP else MOONCAKE_BLOCK_TOKENS
        requests = requests_of(taken, block, is_real=self._given.real)
        is_real = self._given.real
        return Stage(cell.fleet, requests, pace, dies=cell.dies, is_real=is_real), note

    async def _measure_capacity(self) -> float:
        """What real servers do with all requests at once, in requests a second."""
        self._say("how fast the real servers are")
        rows = self._traces[plan.MADE_UP][:200]
        at_once = [row._replace(at_s=0.0) for row in rows]
        requests = requests_of(at_once, MADE_UP_BLOCK_TOKENS, is_real=True)
        stage = Stage(plan.UNEVEN, requests, pace_of(rows), is_real=True)
        records, _ = await stage.play(self._rivals[0])
        return len(records) / max(one.took_s for one in records)

    def _say_length(self) -> None:
        busy = os.getloadavg()[0]
        print(
            f"{len(self._cells)} tables, {self._runs} runs of {self._given.seconds:g} s: about "
            f"{self.seconds / 60:.0f} minutes. Ctrl-C ends it and keeps what there is.",
            file=sys.stderr,
        )
        if busy > 0.5:
            print(
                f"The machine is busy (load average {busy:.1f}): compare ratios at most.",
                file=sys.stderr,
            )

    def _say(self, what: str) -> None:
        end = time.strftime("%H:%M", time.localtime(time.time() + self.seconds))
        self._done += 1
        print(f"[{self._done}/{self._runs}, until {end}] {what}", file=sys.stderr, flush=True)


def _nothing(rival: Rival, why: str) -> Result:
    return Result(rival=rival.name, requests=0, why=why, is_ours=rival.is_ours)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was played, 130 after Ctrl-C, 2 for options that cannot be."""
    parser = _parser()
    given = parser.parse_args(arguments)
    given.seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    if given.quick and given.write is not None:
        parser.error("a quick run is a first impression: it is not kept")
    if given.real and find_llama_server() is None:
        parser.error("--real: llama-server was not found; `make llama` builds it")
    if given.seconds < 1 or min(given.load) <= 0:
        parser.error("--seconds must be at least 1, and each --load above 0")
    try:
        rows = _chosen(given)
        comparison = Comparison(given, rows)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except LookupError as error:
        parser.error(f"--trace: a row has no {error}")
    missing = sorted({one.missing for one in rows if one.missing})
    if missing:
        print(f"rivals that are not installed: {'; '.join(missing)}", file=sys.stderr)
    load = os.getloadavg()[0]
    status = _run(comparison)
    if comparison.serial:
        print("\n".join(comparison.serial))
    if any(table.rows for table in comparison.tables):
        # What is not complete does not replace a page that is.
        _write(DEFAULT_FILE if status else given.write or DEFAULT_FILE, comparison, load)
    return status


def _run(comparison: Comparison) -> int:
    async def play() -> None:
        # asyncio does the same with SIGINT. Leaving the run stops what it started.
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await comparison.play()

    try:
        asyncio.run(play())
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; everything is stopped", file=sys.stderr)
        return 130
    return 0


def _write(file: Path, comparison: Comparison, load: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image = file.with_suffix(".svg")
    chosen = comparison.tables[min(len(comparison.tables) - 1, _pictured(comparison.tables))]
    image.write_text(picture(f"Waits. {chosen.title}", chosen.rows), encoding="utf-8")
    options = shlex.join(sys.argv[1:])
    text = page(
        comparison.tables,
        machine=f"{machine()}, on {time.strftime('%Y-%m-%d', time.gmtime())}. The load average "
        f"before it was {load:.1f}"
        + (": other work kept the machine busy." if load > 1.0 else "."),
        command=f"make compare{f' COMPARE={shlex.quote(options)}' if options else ''}",
        rates=comparison.rates,
        serial=comparison.serial,
        image=image.name,
    )
    file.write_text(text, encoding="utf-8")
    print(f"written: {file} and {image}", file=sys.stderr)


def _pictured(tables: Sequence[Table]) -> int:
    """The table that the picture shows: the uneven fleet at 0.9, or else the first."""
    return next(
        (n for n, one in enumerate(tables) if "uneven" in one.title and "load 0.9" in one.title), 0
    )


def _chosen(given: argparse.Namespace) -> list[Rival]:
    commands = _named("--rival", given.rival, "COMMAND")
    pickers, paddlers = (
        {name: Path(path) for name, path in _named(option, texts, "PATH").items()}
        for option, texts in (("--picker", given.picker), ("--paddler", given.paddler))
    )
    for path in (*pickers.values(), *paddlers.values()):
        if not os.access(path, os.X_OK):
            raise ValueError(f"{path} is no program")
    found = rivals(commands, pickers, paddlers)
    if given.real:  # the rival would see the length of each answer in advance
        found = [one for one in found if not one.knows_sizes]
    if given.quick:
        found = [one for one in found if one.name in (*QUICK_ROWS, *commands, *pickers, *paddlers)]
    if given.only:
        found = [
            one for one in found if any(text.lower() in one.name.lower() for text in given.only)
        ]
    if not found:
        raise ValueError(f"no rival is called {' or '.join(given.only)}")
    return found


def _named(option: str, texts: Sequence[str], value: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, gap, given = text.partition("=")
        if not (name and gap and given):
            raise ValueError(f"{option} {text!r}: NAME={value} is expected")
        found[name] = given
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make compare COMPARE=...",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Any = parser.add_argument
    add("--quick", action="store_true", help="two tables with six rivals, in three minutes")
    add("--seconds", type=float, metavar="S", help=f"the length of a run (default {SECONDS:g})")
    add(
        "--load",
        type=float,
        nargs="+",
        default=[*plan.LOADS],
        metavar="PART",
        help="of what a fleet can do without caches (default 0.7 0.9 1.1)",
    )
    add("--fleet", nargs="+", choices=[*plan.FLEETS], default=[*plan.FLEETS])
    add("--no-faults", action="store_true", help="leave out the dying, slow and shared servers")
    add("--no-serial", action="store_true", help="leave out the two orders at a serial server")
    add("--only", action="append", default=[], metavar="TEXT", help="rivals with it in their name")
    add(
        "--trace",
        type=Path,
        metavar="FOLDER",
        help=f"also replay public traces on the last fleet: {'; '.join(PUBLIC_TRACES)}",
    )
    add("--real", action="store_true", help="real llama-servers; the loads are measured first")
    add(
        "--rival",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="another row: a command that serves clients at {port} in front of {servers} "
        "(host:port,...) with {slots} each; {folder} is a temporary folder",
    )
    add(
        "--picker",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="another row: an endpoint picker of the Gateway API Inference Extension, such as "
        "llm-d's, before which an API server is started (`make kubernetes` builds it)",
    )
    add(
        "--paddler",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="another row: Paddler 1.x",
    )
    add("--write", type=Path, metavar="FILE.md", help=f"default {DEFAULT_FILE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
