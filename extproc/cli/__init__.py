"""The command line: `coxswain`."""

from __future__ import annotations


def main() -> None:
    """Run the `coxswain` command."""
    raise SystemExit("coxswain: no command exists yet")
