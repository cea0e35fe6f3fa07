"""The command line: `coxswain`. One module a command or group; `root` registers them all."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `coxswain` command and exit with its code: 2 when the settings are unusable, 130
    when Ctrl-C came before the command had begun."""
    try:
        from extproc.cli.root import root

        root(prog_name="coxswain")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from extproc.settings import SettingsError

        if not isinstance(error, SettingsError):
            raise
        for problem in error.problems:
            print(problem, file=sys.stderr)
        sys.exit(2)
