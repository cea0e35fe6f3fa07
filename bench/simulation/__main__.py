"""`python -m bench.simulation [NAME ...]`: play the scenarios and hold them against the targets."""

from __future__ import annotations

import argparse
import time

from bench.simulation.scenarios import SCENARIOS

VERDICTS = {None: "", True: "met", False: "MISSED"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the traces' lengths")
    parser.add_argument("--seed", type=int, default=1, help="of the traces' chances")
    given = parser.parse_args()
    unknown = set(given.only) - SCENARIOS.keys()
    if unknown:
        parser.error(f"no scenario is called {', '.join(sorted(unknown))}")
    is_missed = False
    for name, scenario in SCENARIOS.items():
        if given.only and name not in given.only:
            continue
        began = time.perf_counter()
        section = scenario(given.scale, given.seed)
        print(f"\n{section.title} ({time.perf_counter() - began:.0f} s)\n  {section.method}")
        for row in section.rows:
            print(f"  {row.what:<55} {row.value:<12} {row.target:<10} {VERDICTS[row.is_met]}")
            is_missed |= row.is_met is False
    return int(is_missed)


if __name__ == "__main__":
    raise SystemExit(main())
