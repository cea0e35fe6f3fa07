"""The command `make chaos`: what it does, what it prints, and how it ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extproc.demo.process import ChildError
from rigs.chaos import overload, report
from rigs.chaos.accounting import Verdict


def main(arguments: list[str] | None = None) -> int:
    """0 when everything held, 1 when something did not, 2 when it could not run."""
    given = _parser().parse_args(arguments)
    try:
        with _folder(given.keep) as folder:
            verdict = asyncio.run(_overload(given, folder))
    except ChildError as error:
        print(f"chaos: {error}\n{error.tail}", file=sys.stderr)
        return 2
    print("\n".join(report.lines(verdict)))
    print("chaos: HELD" if not verdict.findings else "chaos: BROKEN")
    return 1 if verdict.findings else 0


async def _overload(given: argparse.Namespace, folder: Path) -> Verdict:
    sizes = overload.SHORT if given.short else overload.Sizes()
    return await overload.attack(folder, sizes, given.seed, _say, given.mode)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A new folder for configurations and logs, which outlives us only where it is wanted."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(dir=keep, prefix=time.strftime("%H%M%S-")))
        return
    with tempfile.TemporaryDirectory(prefix="coxswain-chaos-") as folder:
        yield Path(folder)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rigs.chaos", description=__doc__)
    add = parser.add_argument
    add("scenario", nargs="?", choices=["chaos", "overload"], default="chaos")
    add("--seed", type=int, default=1)
    add("--mode", choices=["discovery", "gateway", "original-dst"], default="discovery")
    add("--short", action="store_true")
    add("--keep", type=Path, metavar="FOLDER", help="keep configurations and logs there")
    return parser
