"""The command line: `coxswain`. One module a command or group; `root` registers them all."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `coxswain` command and exit with its code: 2 when the settings are unusable."""
    from extproc.cli.root import root

    try:
        root(prog_name="coxswain")
    except Exception as error:
        from extproc.settings import SettingsError

        if not isinstance(error, SettingsError):
            raise
        for problem in error.problems:
            print(problem, file=sys.stderr)
        sys.exit(2)
