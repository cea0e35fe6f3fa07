"""`python -m rigs.chaos.launch ARGUMENT ...`: the command `coxswain` with a clock that can be
moved, and that counts what lives in its process when it is asked to.

- SIGUSR2: the wall clock is off by as many seconds as the file `CHAOS_CLOCK` says.
- SIGUSR1: the numbers of live tasks and of the product's own objects go to the file
  `CHAOS_CENSUS`, as JSON.

Elapsed time is what it is: on one machine nobody can see two monotonic clocks.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

CLOCK = "CHAOS_CLOCK"
CENSUS = "CHAOS_CENSUS"
TASK = "task "
PROCESS = "process"
"""The first argument of the processes of `fronts`, which are started like the picker."""
COUNTED = frozenset({"Exchange", "Lease", "Ticket", "HeldCall", "CoreCall"})
"""Classes of the product of which none may live on when no request does."""

_seconds, _nanoseconds = time.time, time.time_ns
_offset_s = 0.0


def census() -> dict[str, int]:
    """How many tasks have not ended, by what they run, and how many objects there are of what is
    counted. Takes hundredths of a second where none of these is left: a core that stands still for
    longer on a busy machine is killed."""
    found = _count()
    if COUNTED & found.keys():
        gc.collect()
        found = _count()
    return dict(found)


def _count() -> Counter[str]:
    objects = gc.get_objects()
    found: Counter[str] = Counter()
    for kind, number in Counter(map(type, objects)).items():
        if kind.__name__ in COUNTED and kind.__module__.startswith("extproc."):
            found[kind.__name__] += number
    for one in objects:
        if isinstance(one, asyncio.Task) and not one.done():
            found[TASK + getattr(one.get_coro(), "__qualname__", "?")] += 1
    return found


def _write_census(*_: object) -> None:
    file = Path(os.environ[CENSUS])
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(census()))
    fresh.replace(file)


def _read_clock(*_: object) -> None:
    global _offset_s  # noqa: PLW0603  # as there is one clock in a process
    _offset_s = float(Path(os.environ[CLOCK]).read_text())


def _as_ourselves(name: str) -> list[str]:  # noqa: ARG001 - there is one kind of process
    return [sys.executable, "-m", "rigs.chaos.launch", PROCESS]


def main() -> None:
    time.time = lambda: _seconds() + _offset_s
    time.time_ns = lambda: _nanoseconds() + int(_offset_s * 1e9)
    signal.signal(signal.SIGUSR1, _write_census)
    signal.signal(signal.SIGUSR2, _read_clock)
    if sys.argv[1:2] == [PROCESS]:
        from extproc.cli.process import main as run_process  # noqa: PLC0415  # sees the patches

        sys.exit(run_process(sys.argv[2:]))
    from extproc.cli import main as run  # noqa: PLC0415  # sees the patches
    from extproc.demo import own_module  # noqa: PLC0415  # the same

    own_module.own_module = _as_ourselves
    run()


if __name__ == "__main__":
    main()
