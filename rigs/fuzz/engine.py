"""Fuzzes one target in this process until its time is over or it finds something.

    python -m rigs.fuzz.engine TARGET SECONDS

`atheris` watches which code an input reaches, so it wants the sources: of compiled modules it
sees nothing. Its exit code is not 0 after a finding, whose bytes are in `build/fuzz/TARGET/`.
"""

import importlib
import random
import sys
import time
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from rigs.fuzz.corpus import CORPUS, FOUND, MAX_BYTES, changed, inputs_of
from rigs.fuzz.targets import check_of

TIMEOUT_S = 20
"""An input that takes longer is a finding."""


def main() -> None:
    target, seconds = sys.argv[1], int(sys.argv[2])
    (FOUND / target).mkdir(parents=True, exist_ok=True)
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        blindly(target, check_of(target), seconds)
    else:
        by_coverage(atheris, target, seconds)


def by_coverage(atheris: Any, target: str, seconds: int) -> None:
    """libFuzzer, which never returns."""
    with atheris.instrument_imports(include=["extproc", "scraper", "json", "yaml"]):
        check = check_of(target)
    new_inputs = FOUND / target / "corpus"
    new_inputs.mkdir(exist_ok=True)
    flags = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        f"-timeout={TIMEOUT_S}",
        "-rss_limit_mb=2048",
        f"-artifact_prefix={FOUND / target}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([target, *flags, str(new_inputs), str(CORPUS / target)], check)
    atheris.Fuzz()


def blindly(target: str, check: Callable[[bytes], None], seconds: int) -> None:
    """The corpus with random changes, where atheris is not to be had."""
    seeds = [file.read_bytes() for file in inputs_of(target)]
    chance = random.Random()
    end, runs = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = changed(chance.choice(seeds), seeds, chance)
        runs += 1
        try:
            check(data)
        except Exception:
            file = FOUND / target / f"crash-{sha1(data).hexdigest()}"
            file.write_bytes(data)
            print(f"Test unit written to {file}", file=sys.stderr)
            print(f"Done {runs} runs", file=sys.stderr)
            raise
    print(f"Done {runs} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
