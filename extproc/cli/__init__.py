"""The command line: `coxswain`. One module a command or group; `root` registers them all."""

import os
import sys
from errno import ENOSPC
from typing import TYPE_CHECKING

from extproc.cli.interrupt import end_at_once
from extproc.cli.loading import collector_at_rest

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """Run the `coxswain` command and exit with its code: 2 when the settings are unusable, 130
    when Ctrl-C ended it. The process is the command's: Ctrl-C stays what `end_at_once` made it."""
    end_at_once()
    _replace_closed_streams()
    try:
        if sys.argv[1:] == ["--version"]:
            _show_version()
            sys.exit(0)
        with collector_at_rest():
            root = _serve() if sys.argv[1:2] == ["serve"] else _root()
        root(prog_name="coxswain")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == ENOSPC:
            # Of what commands write, there is only what they print.
            print("coxswain: the output cannot be written: no space left", file=sys.stderr)
            sys.exit(1)
        from extproc.settings import SettingsError

        if not isinstance(error, SettingsError):
            raise
        for problem in error.problems:
            print(problem, file=sys.stderr)
        sys.exit(2)
    finally:
        end_at_once()  # an event loop that had a handler of its own leaves Python's behind


def _replace_closed_streams() -> None:
    """Let nothing be read, and what is printed go nowhere, where the caller has closed a stream
    (`>&-`): else the next file or socket would have its descriptor, and get what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode)  # noqa: SIM115 - for as long as the process lives
            os.set_inheritable(nowhere.fileno(), nowhere.fileno() <= 2)
            setattr(sys, name, nowhere)


def _root() -> "Typer":
    from extproc.cli.root import root

    return root


def _serve() -> "Typer":
    """Without the other commands: to load and to describe them takes a twentieth of a start."""
    from extproc.cli.application import application
    from extproc.cli.commands.serve import serve

    return application([serve], {})


def _show_version() -> None:
    """Without the commands: to load them takes twice as long as all else."""
    from extproc.app.version import own_version

    try:
        print(f"coxswain {own_version()}", flush=True)
    except BrokenPipeError:
        # The end of the process would try again, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
