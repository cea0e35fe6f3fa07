"""`make fuzz`: feeds the parsers of untrusted input.

Each target runs alone, one after the other. New inputs and findings are kept in build/fuzz/;
after a fix, put the finding into tests/data/fuzz/TARGET/, which `make test` replays.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

from rigs.fuzz.corpus import FOUND, ROOT, inputs_of
from rigs.fuzz.targets import TARGETS, check_of

SPARE_S = 600
"""For instrumenting and reading the corpus, also where others need the processor."""
_RUNS = re.compile(r"^Done (\d+) (?:runs|in)", re.MULTILINE)
_UNITS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
_FILE = re.compile(r"Test unit written to (\S+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rigs.fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all by default"
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="for each target (default: %(default)s)"
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="only run what is in the corpus and was found before, against the code as it is "
        "imported: sources or compiled",
    )
    asked = parser.parse_args()
    unknown = set(asked.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if asked.seconds < 1:
        parser.error("--seconds must be at least 1")
    targets = asked.targets or list(TARGETS)
    if not asked.replay:
        how = "by coverage" if importlib.util.find_spec("atheris") else "blindly, without atheris"
        print(f"fuzzing {len(targets)} targets for {asked.seconds} s each, {how}", flush=True)
    table = Table("target", "seconds", "inputs run", "findings")
    has_finding = False
    for target in targets:
        began_at = time.monotonic()
        runs, finding = replay(target) if asked.replay else fuzz(target, asked.seconds)
        seconds, counted = time.monotonic() - began_at, "?" if runs is None else f"{runs:,}"
        table.add_row(target, f"{seconds:.0f}", counted, finding or "none")
        has_finding = has_finding or bool(finding)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 1 if has_finding else 0


def fuzz(target: str, seconds: int) -> tuple[int | None, str]:
    """Run it in a process of its own: a finding may be a crash of that. The number of runs,
    where they were counted, and the finding."""
    print(f"{target}: {TARGETS[target]}", flush=True)
    folder = FOUND / target
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    with log.open("wb") as out:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "rigs.fuzz.engine", target, str(seconds)],
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=seconds + SPARE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"did not end (see {log})"
    text = log.read_text(errors="replace")
    runs = _UNITS.search(text) or _RUNS.search(text)
    finding = ""
    if ended.returncode:
        file = _FILE.search(text)
        what = file[1] if file else f"exit code {ended.returncode}"
        finding = f"{what} (see {log})"
    return None if runs is None else int(runs[1]), finding


def replay(target: str) -> tuple[int, str]:
    """All inputs that are known, once: the number of those that ran, and what goes wrong with the
    last one."""
    found = FOUND / target / "corpus"
    files = [*inputs_of(target), *(sorted(found.iterdir()) if found.is_dir() else ())]
    check = check_of(target)
    for number, file in enumerate(files, start=1):
        try:
            check(file.read_bytes())
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
            return number, f"{file}: {error!r}"
    return len(files), ""


if __name__ == "__main__":
    sys.exit(main())
