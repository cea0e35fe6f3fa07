"""`python -m bench`: run the benchmarks, print their tables, keep them with `--write FILE`."""

import argparse
import asyncio
import os
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import load, simulation
from bench.result import VERDICTS, Measure, Section, table
from bench.simulation import overflows
from extproc.core.scheduler import dispatcher
from extproc.demo.process import ChildError

NAMES = (
    *("agents", "exchanges", "batches", "bodies", "cluster", "envoy", "held", "hops"),
    *("picks", "scraping", "starts", "waits"),
    *simulation.BENCHMARKS,
)
"""In the order in which they run. Those that are no simulations are modules of this package."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "only",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(NAMES)}; simulation: all of those",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the tables as Markdown")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quarter of the time under load, half of the simulations",
    )
    parser.add_argument(
        "--traces",
        type=Path,
        metavar="FOLDER",
        help="public traces for simulated-shared-context, which says where they can be had",
    )
    parser.add_argument(
        "--part",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of each of these traces, from its beginning; default: 1, 10 minutes if compiled",
    )
    given = parser.parse_args()
    if "simulation" in given.only:
        given.only += simulation.BENCHMARKS
        given.only.remove("simulation")
    unknown = set(given.only).difference(NAMES)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    if given.quick and given.write is not None:
        parser.error("a quick run is a first impression: it is not kept")
    overflows.FOLDER, overflows.PART = given.traces, given.part
    load.PACE = 0.25 if given.quick else 1.0
    console = Console(stderr=True)
    sections = []
    chosen = {name: _benchmark(name) for name in NAMES if not given.only or name in given.only}
    for name, measure in chosen.items():
        with console.status(name) as status:
            try:
                sections.append(asyncio.run(measure(status.update)))
            except ChildError as error:
                print(f"{name}: {error}\n{error.tail}", file=sys.stderr)
                return 2
        _print(sections[-1])
    if given.write is not None:
        given.write.write_text(markdown(sections))
    return any(row.is_met is False for section in sections for row in section.rows)


def _benchmark(name: str) -> Measure:
    if name in simulation.BENCHMARKS:
        return simulation.BENCHMARKS[name]
    measure: Measure = import_module(f"bench.{name.replace('-', '_')}").measure
    return measure


def _print(section: Section) -> None:
    shown = Table(title=section.title, caption=section.method, title_justify="left")
    for heading in ("what", "measured", "target", ""):
        shown.add_column(heading, justify="right" if heading == "measured" else "left")
    for row in section.rows:
        shown.add_row(row.what, row.value, row.target, VERDICTS[row.is_met])
    Console().print(shown)


def markdown(sections: list[Section]) -> str:
    """The tables as a page, with the machine named."""
    lines = [
        "# Performance",
        "",
        "Results of the last run of `make bench`. Compare the ratios; times depend on the machine:",
        f"{machine()}, on {time.strftime('%Y-%m-%d', time.gmtime())}.",
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", f"{section.method}.", "", *table(section.rows)]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Cores, processor, memory, versions, and whether the code is compiled."""
    way = "interpreted" if dispatcher.__file__.endswith(".py") else "compiled"
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, {way}"
    )


if __name__ == "__main__":
    sys.exit(main())
