"""The command `make chaos`: what it does, what it prints, and how it ends."""

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from extproc.demo.llama_server import find_llama_server
from extproc.demo.process import ChildError
from rigs.chaos import overload, report
from rigs.chaos.attack import Outcome, attack
from rigs.chaos.script import FORMS, MODES, draw_script
from tests.fakes.valkey import PROGRAM

LONG_S = 60.0
"""Of load; a run takes about half as long again to begin and to come to rest."""
SHORT_S = 30.0
LONG_SEEDS = 20


def main(arguments: list[str] | None = None) -> int:
    """0 when everything held, 1 when something did not, 2 when it could not run."""
    given = _parser().parse_args(arguments)
    if given.windows:
        print("\n".join(report.windows()))
        return 0
    broken = []
    outcomes: list[Outcome] = []
    seconds = 0.0
    is_long = given.scenario == "chaos" and not given.short
    seeds = given.seeds or (LONG_SEEDS if is_long else 1)
    for seed in range(given.seed, given.seed + seeds):
        began_at = time.monotonic()
        try:
            with _folder(given.keep) as folder:
                outcome = uvloop.run(_run(given, seed, folder))
        except ChildError as error:
            print(f"chaos: seed {seed}: {error}\n{error.tail}", file=sys.stderr)
            return 2
        except (TimeoutError, ExceptionGroup):  # something did not come back after its failure
            traceback.print_exc()
            broken.append(seed)
            continue
        seconds += time.monotonic() - began_at
        outcomes.append(outcome)
        print("\n".join(report.lines(outcome.verdict)), flush=True)
        if outcome.verdict.findings:
            broken.append(seed)
    print("\n".join(report.total(outcomes, seconds)))
    if broken:
        print(f"chaos: BROKEN by seed {', '.join(map(str, broken))}")
        print("chaos: once more with --seed N --seeds 1, and --keep FOLDER for what was recorded")
    else:
        print("chaos: everything held")
    return 1 if broken else 0


async def _run(given: argparse.Namespace, seed: int, folder: Path) -> Outcome:
    if given.scenario == "overload":
        sizes = overload.SHORT if given.short else overload.Sizes()
        mode = given.mode or "discovery"
        verdict = await overload.attack(folder, sizes, seed, _say, mode)
        return Outcome(verdict=verdict, done=Counter({"overload": 1}))
    seconds = given.seconds or (SHORT_S if given.short else LONG_S)
    has_llama = find_llama_server() is not None and not given.simulators
    script = draw_script(
        seed,
        seconds,
        mode=given.mode,
        has_llama=has_llama,
        form=given.form,
        has_engine=PROGRAM is not None,
    )
    print(script, flush=True)
    return await attack(folder, script, _say)


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
    parser = argparse.ArgumentParser(
        prog="python -m rigs.chaos",
        description="Run a fleet behind real Envoy, break everything in an order that a seed "
        "decides, and account for each request. `overload` breaks nothing: it only sends more "
        "than the slots can do.",
    )
    add = parser.add_argument
    add("scenario", nargs="?", choices=["chaos", "overload"], default="chaos")
    add("--seed", type=int, default=1, help="of the first run; a seed replays its script")
    add("--seeds", type=int, help=f"how many runs, each with the next seed (default {LONG_SEEDS})")
    add("--seconds", type=float, help=f"of load in each run (default {LONG_S:g})")
    add("--mode", choices=MODES, help="of Envoy's configuration; by default the seed chooses")
    add("--form", choices=FORMS, help="of the picker; by default the seed chooses")
    add("--short", action="store_true", help=f"one run, {SHORT_S:g} s of load, smaller storms")
    add("--windows", action="store_true", help="print the windows and what they excuse")
    add("--simulators", action="store_true", help="no real llama-servers")
    add("--keep", type=Path, metavar="FOLDER", help="keep configurations, logs and records there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
