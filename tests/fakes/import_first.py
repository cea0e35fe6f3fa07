"""Imports each named module in a process that has imported none of ours before it.

    python -m tests.fakes.import_first extproc.core.request extproc.stream.stage

A process is forked for each, once all that is not ours is loaded, which takes most of the time of
an import. Prints the names of those that failed, with the exit status of their process.
"""

import importlib
import os
import sys
from contextlib import suppress

OURS = ("extproc", "scraper")


def main(names: list[str]) -> None:
    for other in _others(names):
        importlib.import_module(other)
    failed = [(name, status) for name in names if (status := _status_of_fork(name))]
    # Nothing is written before: a fork would write what is still in the buffer once more.
    sys.stdout.writelines(f"{name} {status}\n" for name, status in failed)


def _others(names: list[str]) -> list[str]:
    """What these modules import that is not ours; nothing if that crashes."""
    receiving, sending = os.pipe()
    if (child := os.fork()) == 0:
        for name in names:
            with suppress(Exception):  # `main` finds it again
                importlib.import_module(name)
        others = [name for name in sys.modules if name.partition(".")[0] not in OURS]
        with open(sending, "w", encoding="utf-8") as pipe:
            pipe.write("\n".join(others))
        os._exit(0)
    os.close(sending)
    with open(receiving, encoding="utf-8") as pipe:
        others = pipe.read().split()
    os.waitpid(child, 0)
    return others


def _status_of_fork(name: str) -> int:
    """The exit status of a process that imports this module, negative for a signal."""
    if (child := os.fork()) == 0:
        importlib.import_module(name)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(sys.argv[1:])
